#include "text/grammar/gbnf_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace moeflux {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

}  // namespace

GbnfReader::GbnfReader(std::string_view text) : text_(text) {
  if (const std::size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
    bad_at(at, "the text is not valid UTF-8");
  }
}

void GbnfReader::bad_at(std::size_t at, std::string_view what) const {
  const std::string_view before = text_.substr(0, at);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  fail(Errc::BadInput, "grammar: line {}, column {}: {}", line, at - line_begin + 1, what);
}

bool GbnfReader::take(std::string_view what) {
  if (!next_is(what)) return false;
  at_ += what.size();
  return true;
}

void GbnfReader::skip_blanks(Newlines newlines) {
  while (!at_end()) {
    const char c = text_[at_];
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == ' ' || c == '\t' || (newlines == Newlines::Skip && (c == '\n' || c == '\r'))) {
      ++at_;
    } else {
      return;
    }
  }
}

std::string_view GbnfReader::take_name() {
  const std::size_t begin = at_;
  while (!at_end() && is_name_character(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

std::string GbnfReader::take_literal() {
  const std::size_t begin = at_++;
  std::string bytes;
  while (!take("\"")) {
    if (at_end() || next_is("\n")) bad_at(begin, "this literal has no closing quote");
    append_utf8(bytes, take_character("a literal"));
  }
  return bytes;
}

CodePoints GbnfReader::take_class() {
  const std::size_t begin = at_++;
  const bool negated = take("^");
  CodePoints set;
  while (!take("]")) {
    if (at_end() || next_is("\n")) bad_at(begin, "this class has no closing bracket");
    const std::size_t item = at_;
    const char32_t first = take_character("a class");
    char32_t last = first;
    if (next_is("-") && !next_is("-]")) {
      ++at_;
      if (at_end()) bad_at(begin, "this class has no closing bracket");
      last = take_character("a class");
      if (last < first) bad_at(item, "this range is empty: its ends are in the wrong order");
    }
    set.add(first, last);
  }
  if (negated) return set.complement();
  if (set.empty()) bad_at(begin, "an empty class matches nothing");
  return set;
}

std::uint32_t GbnfReader::take_number(std::uint32_t max, std::string_view what) {
  const std::size_t begin = at_;
  std::uint32_t value = 0;
  for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
    value = value * 10 + static_cast<std::uint32_t>(text_[at_] - '0');
    if (value > max) bad_at(begin, fmt::format("{} is at most {}", what, max));
  }
  if (at_ == begin) bad(fmt::format("expected {}", what));
  return value;
}

char32_t GbnfReader::take_character(std::string_view inside_of) {
  if (!take("\\")) {
    const Utf8Step step = decode_utf8(text_, at_);
    at_ += step.length;
    return step.code_point;
  }
  if (at_end()) bad("the text ends in an escape");
  const char c = text_[at_++];
  switch (c) {
    case 'n':
      return U'\n';
    case 'r':
      return U'\r';
    case 't':
      return U'\t';
    case 'x':
      return take_hex(2);
    case 'u':
      return take_hex(4);
    case 'U':
      return take_hex(8);
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
    case '/':
      return static_cast<char32_t>(c);
    default:
      bad_at(at_ - 2, fmt::format("unknown escape in {}; write \\\\ for a backslash", inside_of));
  }
}

char32_t GbnfReader::take_hex(std::size_t digits) {
  const std::size_t begin = at_;
  char32_t value = 0;
  for (std::size_t i = 0; i < digits; ++i, ++at_) {
    const char c = at_end() ? '\0' : text_[at_];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) bad_at(begin, fmt::format("this escape needs {} hexadecimal digits", digits));
    value = value * 16 + static_cast<char32_t>(digit);
  }
  if (value > CodePoints::kLast || (value >= 0xD800 && value <= 0xDFFF)) {
    bad_at(begin, "this escape is not a character");
  }
  return value;
}

}  // namespace moeflux
