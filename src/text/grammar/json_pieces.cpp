#include "text/grammar/json_pieces.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/utf8.h"

namespace moeflux {
namespace {

// Enough for every number that a 64-bit integer or a double tells apart, and never an overflow.
constexpr std::uint32_t kIntegerDigits = 18, kNumberDigits = 15, kExponentDigits = 2;
constexpr std::uint32_t kMaxIndent = 40;
constexpr std::size_t kMaxKeyLength = 300;

CodePoints direct_characters() {
  CodePoints set(0x20, CodePoints::kLast);
  return set.without(CodePoints::of(U"\"\\"));
}

CodePoints hex_digits() {
  CodePoints set('0', '9');
  set.add('a', 'f');
  set.add('A', 'F');
  return set;
}

std::u32string decoded(std::string_view text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    out += step.code_point;
    at += step.length;
  }
  return out;
}

}  // namespace

JsonPieces::JsonPieces(Grammar& grammar, JsonBlanks blanks) : grammar_(grammar) {
  Grammar& g = grammar_;
  const ExprId none = g.literal("");
  if (blanks == JsonBlanks::None) {
    blank_ = g.declare("blank", none);
    space_ = none;
    comma_ = g.literal(",");
    return;
  }
  const ExprId indent = g.repeat(g.set(CodePoints::of(U" \t")), 0, kMaxIndent);
  blank_ =
      g.declare("blank", g.choice({none, g.literal(" "), g.sequence({g.literal("\n"), indent})}));
  space_ = g.optional(g.literal(" "));
  comma_ = g.sequence({g.literal(","), blank()});
}

// Any character in any spelling JSON has for it, without lone surrogates.
RuleId JsonPieces::any_character() {
  if (character_) return *character_;
  Grammar& g = grammar_;
  const ExprId hex = g.set(hex_digits());
  const auto set = [&](std::u32string_view characters) {
    return g.set(CodePoints::of(characters));
  };
  const ExprId plain =
      g.sequence({g.set(hex_digits().without(CodePoints::of(U"dD"))), hex, hex, hex});
  const ExprId low_d = g.sequence({set(U"dD"), g.set(CodePoints('0', '7')), hex, hex});
  const ExprId pair = g.sequence({set(U"dD"), set(U"89abAB"), hex, hex, g.literal("\\u"),
                                  set(U"dD"), set(U"cdefCDEF"), hex, hex});
  const ExprId coded = g.sequence({g.literal("u"), g.choice({plain, low_d, pair})});
  const ExprId escaped = g.sequence({g.literal("\\"), g.choice({set(U"\"\\/bfnrt"), coded})});
  character_ = g.declare("character", g.choice({g.set(direct_characters()), escaped}));
  return *character_;
}

ExprId JsonPieces::string(std::uint32_t min_length, std::uint32_t max_length) {
  Grammar& g = grammar_;
  const ExprId quote = g.literal("\"");
  const ExprId text = g.repeat(g.rule(any_character()), min_length, max_length);
  return g.sequence({quote, text, quote});
}

ExprId JsonPieces::integer() {
  Grammar& g = grammar_;
  const ExprId digit = g.set(CodePoints('0', '9'));
  const ExprId more = g.repeat(digit, 0, kIntegerDigits - 1);
  const ExprId natural =
      g.choice({g.literal("0"), g.sequence({g.set(CodePoints('1', '9')), more})});
  return g.sequence({g.optional(g.literal("-")), natural});
}

ExprId JsonPieces::number() {
  Grammar& g = grammar_;
  const ExprId digit = g.set(CodePoints('0', '9'));
  const ExprId natural =
      g.choice({g.literal("0"),
                g.sequence({g.set(CodePoints('1', '9')), g.repeat(digit, 0, kNumberDigits - 1)})});
  const ExprId fraction =
      g.optional(g.sequence({g.literal("."), g.repeat(digit, 1, kNumberDigits)}));
  const ExprId exponent =
      g.optional(g.sequence({g.set(CodePoints::of(U"eE")), g.optional(g.set(CodePoints::of(U"+-"))),
                             g.repeat(digit, 1, kExponentDigits)}));
  return g.sequence({g.optional(g.literal("-")), natural, fraction, exponent});
}

ExprId JsonPieces::value(const Json& json) {
  if (!json.is_structured() || json.empty()) return grammar_.literal(dump_json(json));
  const bool is_object = json.is_object();
  std::vector<ExprId> parts = {grammar_.literal(is_object ? "{" : "["), blank()};
  for (auto at = json.begin(); at != json.end(); ++at) {
    if (at != json.begin()) parts.push_back(comma());
    if (is_object) parts.push_back(key(at.key()));
    parts.push_back(value(*at));
  }
  parts.push_back(blank());
  parts.push_back(grammar_.literal(is_object ? "}" : "]"));
  return grammar_.sequence(std::move(parts));
}

ExprId JsonPieces::character(const CodePoints& set) {
  Grammar& g = grammar_;
  std::vector<ExprId> spellings;
  const CodePoints direct = set.common(direct_characters());
  if (!direct.empty()) spellings.push_back(g.set(direct));
  const CodePoints escaped = set.without(direct_characters());
  for (const CodePoints::Range& range : escaped.ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      const std::string text = dump_json(Json(std::string(1, static_cast<char>(c))));
      spellings.push_back(g.literal(std::string_view(text).substr(1, text.size() - 2)));
    }
  }
  return spellings.empty() ? g.nothing() : g.choice(std::move(spellings));
}

ExprId JsonPieces::key(std::string_view name) {
  return grammar_.sequence({grammar_.literal(dump_json(Json(std::string(name))) + ":"), space_});
}

// Only one spelling of each character, so that no name slips through in another one.
ExprId JsonPieces::other_key(const std::vector<std::string>& names) {
  Grammar& g = grammar_;
  if (names.empty()) {
    return g.sequence({string(0, Grammar::kUnbounded), g.literal(":"), space_});
  }
  std::vector<std::u32string> characters;
  for (const std::string& name : names) {
    characters.push_back(decoded(name));
    if (characters.back().size() > kMaxKeyLength) {
      fail(Errc::LimitExceeded, "a property name of more than {} characters", kMaxKeyLength);
    }
  }
  return g.sequence({g.literal("\""), other_than(characters, 0), g.literal("\":"), space_});
}

// Any text that is not the rest, from `at`, of one of the names; they agree before it.
ExprId JsonPieces::other_than(const std::vector<std::u32string>& names, std::size_t at) {
  Grammar& g = grammar_;
  if (!key_character_) {
    key_character_ = g.declare("key character", character(CodePoints::all()));
  }
  std::map<char32_t, std::vector<std::u32string>> by_next;
  bool is_name = false;
  for (const std::u32string& name : names) {
    if (name.size() == at) {
      is_name = true;
    } else {
      by_next[name[at]].push_back(name);
    }
  }
  CodePoints others = CodePoints::all();
  std::vector<ExprId> ways;
  if (!is_name) ways.push_back(g.literal(""));
  for (const auto& [next, rest] : by_next) {
    others = others.without(CodePoints(next, next));
    const RuleId rule = g.declare("other name", other_than(rest, at + 1));
    ways.push_back(g.sequence({character(CodePoints(next, next)), g.rule(rule)}));
  }
  ways.push_back(
      g.sequence({character(others), g.repeat(g.rule(*key_character_), 0, Grammar::kUnbounded)}));
  return g.choice(std::move(ways));
}

ExprId JsonPieces::list(std::string_view open, ExprId item, std::uint32_t min, std::uint32_t max,
                        std::string_view close) {
  Grammar& g = grammar_;
  const ExprId end = g.literal(close);
  std::vector<ExprId> ways;
  if (min == 0) ways.push_back(end);
  if (max > 0) {
    const std::uint32_t more = max == Grammar::kUnbounded ? max : max - 1;
    const ExprId rest = g.repeat(g.sequence({comma(), item}), min > 0 ? min - 1 : 0, more);
    ways.push_back(g.sequence({blank(), item, rest, blank(), end}));
  }
  return g.sequence({g.literal(open), g.choice(std::move(ways))});
}

RuleId JsonPieces::any_value_rule() {
  if (value_) return *value_;
  Grammar& g = grammar_;
  value_ = g.declare("value");
  std::vector<ExprId> kinds = {g.rule(any_object_rule()),
                               list("[", g.rule(*value_), 0, Grammar::kUnbounded, "]"),
                               string(0, Grammar::kUnbounded), number()};
  for (const char* word : {"true", "false", "null"}) kinds.push_back(g.literal(word));
  g.define(*value_, g.choice(std::move(kinds)));
  return *value_;
}

RuleId JsonPieces::any_object_rule() {
  if (object_) return *object_;
  object_ = grammar_.declare("object");
  const ExprId pair = grammar_.sequence({other_key({}), any_value()});
  grammar_.define(*object_, list("{", pair, 0, Grammar::kUnbounded, "}"));
  return *object_;
}

}  // namespace moeflux
