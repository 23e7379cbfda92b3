#include "text/grammar/grammar.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace moeflux {
namespace {

// ---- sets of characters

constexpr char32_t kSurrogateFirst = 0xD800, kSurrogateLast = 0xDFFF;

std::string encoded(char32_t c) {
  std::string bytes;
  append_utf8(bytes, c);
  return bytes;
}

// Cuts [first, last], all of one encoded length, where a range of the leading bytes does not go
// with the full range of the bytes after it.
void append_sequences(char32_t first, char32_t last, std::size_t length,
                      std::vector<std::vector<ByteSpan>>& out) {
  for (std::size_t tail = length - 1; tail > 0; --tail) {
    const char32_t mask = (char32_t{1} << (6 * tail)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      append_sequences(first, first | mask, length, out);
      append_sequences((first | mask) + 1, last, length, out);
      return;
    }
    if ((last & mask) != mask) {
      append_sequences(first, (last & ~mask) - 1, length, out);
      append_sequences(last & ~mask, last, length, out);
      return;
    }
  }
  const std::string low = encoded(first), high = encoded(last);
  std::vector<ByteSpan> sequence;
  for (std::size_t i = 0; i < length; ++i) {
    sequence.push_back({static_cast<std::uint8_t>(low[i]), static_cast<std::uint8_t>(high[i])});
  }
  out.push_back(std::move(sequence));
}

// ---- expressions and rules

constexpr ExprId kUndefined = std::numeric_limits<ExprId>::max();

}  // namespace

CodePoints CodePoints::of(std::u32string_view characters) {
  CodePoints set;
  for (const char32_t c : characters) set.add(c, c);
  return set;
}

void CodePoints::add(char32_t first, char32_t last) {
  MOEFLUX_ASSERT(first <= last && last <= kLast);
  if (first < kSurrogateFirst) add_plain(first, std::min<char32_t>(last, kSurrogateFirst - 1));
  if (last > kSurrogateLast) add_plain(std::max<char32_t>(first, kSurrogateLast + 1), last);
}

void CodePoints::add_plain(char32_t first, char32_t last) {
  auto at = std::lower_bound(ranges_.begin(), ranges_.end(), first,
                             [](const Range& r, char32_t c) { return r.last + 1 < c; });
  auto end = at;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  at = ranges_.erase(at, end);
  ranges_.insert(at, {first, last});
}

void CodePoints::add(const CodePoints& other) {
  for (const Range& range : other.ranges_) add(range.first, range.last);
}

CodePoints CodePoints::complement() const {
  CodePoints result;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) result.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLast) result.add(next, kLast);
  return result;
}

CodePoints CodePoints::common(const CodePoints& other) const {
  CodePoints result;
  for (const Range& a : ranges_) {
    for (const Range& b : other.ranges_) {
      const char32_t first = std::max(a.first, b.first), last = std::min(a.last, b.last);
      if (first <= last) result.add(first, last);
    }
  }
  return result;
}

CodePoints CodePoints::without(const CodePoints& other) const {
  return common(other.complement());
}

bool CodePoints::contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const Range& r) { return r.first <= c && c <= r.last; });
}

std::uint32_t CodePoints::count() const {
  std::uint32_t n = 0;
  for (const Range& range : ranges_) n += range.last - range.first + 1;
  return n;
}

std::vector<std::vector<ByteSpan>> utf8_sequences(const CodePoints& set) {
  constexpr char32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF, CodePoints::kLast};
  std::vector<std::vector<ByteSpan>> out;
  for (const CodePoints::Range& range : set.ranges()) {
    char32_t first = range.first;
    for (std::size_t length = 1; length <= 4; ++length) {
      const char32_t last = std::min(range.last, kLastOfLength[length - 1]);
      if (first > last) continue;
      append_sequences(first, last, length, out);
      first = last + 1;
    }
  }
  return out;
}

ExprId Grammar::add(GrammarExpr expr) {
  if (exprs_.size() >= kMaxExprs) {
    fail(Errc::LimitExceeded, "grammar: more than {} expressions; simplify it", kMaxExprs);
  }
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Grammar::literal(std::string_view bytes) {
  return add({.kind = GrammarExpr::Kind::Literal, .literal = std::string(bytes)});
}

ExprId Grammar::set(CodePoints characters) {
  return add({.kind = GrammarExpr::Kind::Set, .set = std::move(characters)});
}

ExprId Grammar::sequence(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = GrammarExpr::Kind::Sequence, .parts = std::move(parts)});
}

ExprId Grammar::choice(std::vector<ExprId> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = GrammarExpr::Kind::Choice, .parts = std::move(parts)});
}

ExprId Grammar::repeat(ExprId part, std::uint32_t min, std::uint32_t max) {
  MOEFLUX_ASSERT(min <= max);
  return add({.kind = GrammarExpr::Kind::Repeat, .parts = {part}, .min = min, .max = max});
}

ExprId Grammar::rule(RuleId id) {
  MOEFLUX_ASSERT(id < rules_.size());
  return add({.kind = GrammarExpr::Kind::Rule, .rule = id});
}

RuleId Grammar::declare(std::string name) {
  if (rules_.size() >= kMaxRules) {
    fail(Errc::LimitExceeded, "grammar: more than {} rules; simplify it", kMaxRules);
  }
  rules_.push_back({std::move(name), kUndefined});
  return static_cast<RuleId>(rules_.size() - 1);
}

void Grammar::define(RuleId id, ExprId body) {
  MOEFLUX_ASSERT(id < rules_.size() && rules_[id].body == kUndefined && body < exprs_.size());
  rules_[id].body = body;
}

RuleId Grammar::declare(std::string name, ExprId body) {
  const RuleId id = declare(std::move(name));
  define(id, body);
  return id;
}

}  // namespace moeflux
