// The `pattern` of strings as rules of a grammar.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/grammar/json_pieces.h"
#include "text/grammar/pattern_language.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxTextEdges = 60'000;

PatternNode any_text() {
  return {.kind = PatternKind::Repeat,
          .parts = {{.kind = PatternKind::Set, .set = CodePoints::all()}},
          .min = 0,
          .max = Grammar::kUnbounded};
}

bool only_consumes(const PatternNode& node) {
  return !contains_kind(node, PatternKind::Start) && !contains_kind(node, PatternKind::End) &&
         !contains_kind(node, PatternKind::Ahead) && !contains_kind(node, PatternKind::Border);
}

// One alternative with ^ at its start and $ at its end at most, as the whole text.
std::optional<PatternNode> whole_text(PatternNode way) {
  if (way.kind != PatternKind::Sequence)
    way = {.kind = PatternKind::Sequence, .parts = {std::move(way)}};
  auto& parts = way.parts;
  const bool starts = !parts.empty() && parts.front().kind == PatternKind::Start;
  if (starts) parts.erase(parts.begin());
  const bool ends = !parts.empty() && parts.back().kind == PatternKind::End;
  if (ends) parts.pop_back();
  if (!only_consumes(way)) return std::nullopt;
  if (!starts) parts.insert(parts.begin(), any_text());
  if (!ends) parts.push_back(any_text());
  return way;
}

// The pattern without anything that looks around, where it can be written so.
std::optional<PatternNode> plain_pattern(PatternNode node) {
  if (node.kind != PatternKind::Choice) return whole_text(std::move(node));
  for (PatternNode& part : node.parts) {
    auto whole = whole_text(std::move(part));
    if (!whole) return std::nullopt;
    part = std::move(*whole);
  }
  return node;
}

std::uint64_t times(std::uint64_t length, std::uint64_t count) {
  if (length == 0 || count == 0) return 0;
  if (length >= Grammar::kUnbounded || count >= Grammar::kUnbounded) return Grammar::kUnbounded;
  return std::min<std::uint64_t>(length * count, Grammar::kUnbounded);
}

LengthRange pattern_length(const PatternNode& node) {
  LengthRange total = {0, 0};
  switch (node.kind) {
    case PatternKind::Set:
      return {1, 1};
    case PatternKind::Sequence:
      for (const PatternNode& part : node.parts) {
        const LengthRange one = pattern_length(part);
        total.min = std::min<std::uint64_t>(total.min + one.min, Grammar::kUnbounded);
        total.max = std::min<std::uint64_t>(total.max + one.max, Grammar::kUnbounded);
      }
      return total;
    case PatternKind::Choice:
      total = {Grammar::kUnbounded, 0};
      for (const PatternNode& part : node.parts) {
        const LengthRange one = pattern_length(part);
        total = {std::min(total.min, one.min), std::max(total.max, one.max)};
      }
      return total;
    case PatternKind::Repeat:
      break;
    default:  // looks around
      return total;
  }
  const LengthRange one = pattern_length(node.parts[0]);
  return {times(one.min, node.min), times(one.max, node.max)};
}

// Of x* and the like, alone or followed by nothing else: x as often as the length asks for.
bool bound_by_count(PatternNode& node, const LengthRange& wanted) {
  PatternNode* repeat = &node;
  while (repeat->kind == PatternKind::Sequence && repeat->parts.size() == 1)
    repeat = &repeat->parts[0];
  if (repeat->kind != PatternKind::Repeat) return false;
  const LengthRange one = pattern_length(repeat->parts[0]);
  if (one.min != 1 || one.max != 1) return false;
  const std::uint64_t min = std::max<std::uint64_t>(repeat->min, wanted.min);
  const std::uint64_t max = std::min<std::uint64_t>(repeat->max, wanted.max);
  if (min > max) return false;
  repeat->min = static_cast<std::uint32_t>(min);
  repeat->max = static_cast<std::uint32_t>(max);
  return true;
}

ExprId emit(Grammar& g, JsonPieces& pieces, const PatternNode& node) {
  if (node.kind == PatternKind::Set) return pieces.character(node.set);
  std::vector<ExprId> parts;
  for (const PatternNode& part : node.parts) parts.push_back(emit(g, pieces, part));
  if (node.kind == PatternKind::Repeat) return g.repeat(parts[0], node.min, node.max);
  if (node.kind == PatternKind::Choice) return g.choice(std::move(parts));
  return parts.empty() ? g.literal("") : g.sequence(std::move(parts));
}

}  // namespace

ExprId add_pattern(Grammar& grammar, JsonPieces& pieces, std::string_view text,
                   const LengthRange& length) {
  if (auto pattern = plain_pattern(parse_pattern(text))) {
    const LengthRange own = pattern_length(*pattern);
    const bool inside = own.min >= length.min && own.max <= length.max;
    if (inside || bound_by_count(*pattern, length)) {
      const ExprId quote = grammar.literal("\"");
      return grammar.sequence({quote, emit(grammar, pieces, *pattern), quote});
    }
  }
  TextLanguages languages;
  const LanguageId any = languages.characters(CodePoints::all());
  const auto min = static_cast<std::uint32_t>(length.min);
  const auto max =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(length.max, Grammar::kUnbounded));
  return add_texts(
      grammar, pieces, languages,
      languages.both({pattern_language(languages, text), languages.repeat(any, min, max)}), "\"");
}

ExprId add_texts(Grammar& grammar, JsonPieces& pieces, TextLanguages& languages, LanguageId texts,
                 std::string_view end) {
  const TextDfa dfa = languages.automaton(texts, kMaxTextStates);
  if (dfa.size() == 0) return grammar.nothing();
  std::size_t n_edges = 0;
  for (const auto& edges : dfa.edges) n_edges += edges.size();
  if (n_edges > kMaxTextEdges) fail(Errc::LimitExceeded, "a pattern with too many steps");
  // Sets that take many bytes to write are rules, each of which stands here once.
  std::map<std::vector<std::pair<char32_t, char32_t>>, RuleId> wide;
  const auto one_of = [&](const CodePoints& set) {
    if (set.ranges().back().last < 0x80) return pieces.character(set);
    std::vector<std::pair<char32_t, char32_t>> key;
    for (const CodePoints::Range& range : set.ranges()) key.emplace_back(range.first, range.last);
    const auto known = wide.find(key);
    if (known != wide.end()) return grammar.rule(known->second);
    const RuleId rule = grammar.declare("character", pieces.character(set));
    wide.emplace(std::move(key), rule);
    return grammar.rule(rule);
  };
  std::vector<RuleId> rules;
  for (std::size_t i = 0; i < dfa.size(); ++i) rules.push_back(grammar.declare("text"));
  for (std::size_t i = 0; i < dfa.size(); ++i) {
    std::vector<ExprId> ways;
    if (dfa.accepts[i] != 0) ways.push_back(grammar.literal(end));
    for (const TextDfa::Edge& edge : dfa.edges[i]) {
      ways.push_back(grammar.sequence({one_of(edge.characters), grammar.rule(rules[edge.target])}));
    }
    grammar.define(rules[i], grammar.choice(std::move(ways)));
  }
  return grammar.sequence({grammar.literal("\""), grammar.rule(rules[0])});
}

}  // namespace moeflux
