#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace moeflux::jinja {
namespace {

// ---- numbers and strings

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

struct NumberLiteral {
  std::size_t size = 0;  // bytes; 0 when the text does not begin with a number
  bool is_float = false;
  bool good = true;  // false: too large, or in a notation that templates do not use
  std::int64_t integer = 0;
  double real = 0;
};

std::size_t digits_end(std::string_view text, std::size_t at) {
  while (at < text.size() && digit_value(text[at]) < 10) ++at;
  return at;
}

// Decimal digits, for a float with a fraction, an exponent or both.
NumberLiteral read_number(std::string_view text, bool integer_only) {
  NumberLiteral literal;
  const std::size_t whole = digits_end(text, 0);
  std::size_t end = whole;
  if (whole == 0) return literal;
  if (!integer_only && text.substr(end).starts_with('.') && digits_end(text, end + 1) > end + 1) {
    end = digits_end(text, end + 1);
  }
  if (!integer_only && end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    const bool sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-');
    const std::size_t exponent = end + (sign ? 2 : 1);
    if (digits_end(text, exponent) > exponent) end = digits_end(text, exponent);
  }
  literal.size = end;
  literal.is_float = end > whole;
  const char* const last = text.data() + end;
  const std::errc error = literal.is_float ? std::from_chars(text.data(), last, literal.real).ec
                                           : std::from_chars(text.data(), last, literal.integer).ec;
  // 0x1F, 1_000 and 007
  const bool odd = (end < text.size() && (text[end] == '_' || std::isalpha(text[end]) != 0)) ||
                   (!literal.is_float && end > 1 && text[0] == '0');
  literal.good = error == std::errc() && !odd;
  return literal;
}

bool is_high_surrogate(char32_t c) {
  return c >= 0xD800 && c <= 0xDBFF;
}
bool is_low_surrogate(char32_t c) {
  return c >= 0xDC00 && c <= 0xDFFF;
}

// `count` hexadecimal digits at `at`; false when they are not there.
bool read_hex(std::string_view text, std::size_t at, std::size_t count, char32_t& value) {
  if (at + count > text.size()) return false;
  value = 0;
  for (std::size_t i = at; i < at + count; ++i) {
    const int digit = digit_value(text[i]);
    if (digit > 15) return false;
    value = value * 16 + static_cast<char32_t>(digit);
  }
  return true;
}

// The letter after a backslash that stands for one character, or 0.
char simple_escape(char letter) {
  constexpr std::string_view kLetters = "\\'\"ntrabfv", kMeanings = "\\'\"\n\t\r\a\b\f\v";
  const std::size_t at = kLetters.find(letter);
  return at == std::string_view::npos ? '\0' : kMeanings[at];
}

// Bytes of the quoted string the text begins with, quotes included; 0 when there is none.
std::size_t string_literal_size(std::string_view text) {
  if (text.empty() || (text[0] != '\'' && text[0] != '"')) return 0;
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == text[0]) {
      return at + 1;
    }
  }
  return 0;
}

// Appends what the inside of a string literal means. Returns what is wrong, or nothing.
std::string unescape(std::string_view inside, std::string& text) {
  for (std::size_t at = 0; at < inside.size(); ++at) {
    if (inside[at] != '\\' || at + 1 == inside.size()) {
      text += inside[at];
      continue;
    }
    const char letter = inside[++at];
    char32_t code_point = 0;
    if (const char simple = simple_escape(letter); simple != '\0') {
      text += simple;
    } else if (letter == '\n') {
      // A backslash at the end of a line joins the lines.
    } else if (digit_value(letter) < 8) {
      std::size_t digits = 0;
      for (; digits < 3 && at < inside.size() && digit_value(inside[at]) < 8; ++digits, ++at) {
        code_point = code_point * 8 + static_cast<char32_t>(digit_value(inside[at]));
      }
      --at;
      append_utf8(text, code_point);
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      const std::size_t count = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      if (!read_hex(inside, at + 1, count, code_point) || code_point > 0x10FFFF) {
        return fmt::format("a string has a damaged \\{} escape", letter);
      }
      at += count;
      char32_t low = 0;
      if (is_high_surrogate(code_point) && inside.substr(at + 1, 2) == "\\u" &&
          read_hex(inside, at + 3, 4, low) && is_low_surrogate(low)) {
        code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
      }
      const bool alone = is_high_surrogate(code_point) || is_low_surrogate(code_point);
      append_utf8(text, alone ? char32_t{0xFFFD} : code_point);
    } else if (letter == 'N') {
      return "a string names a character with \\N{...}, which is not supported";
    } else {
      text += '\\';
      text += letter;
    }
  }
  return {};
}

// ---- tokens

// Longest first, so that "**" is not read as "*" twice.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

std::string normalize_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name)
      : source_(normalize_newlines(source)), name_(name) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) lex_outside();
    push(TokenType::End, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void syntax_error(const std::string& what) const {
    fail(Errc::BadInput, "{}:{}: {}", name_, line_, what);
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool looking_at(std::string_view text) const { return rest().starts_with(text); }

  void advance(std::size_t bytes) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
    at_ += bytes;
  }

  Token& push(TokenType type, std::string text) {
    tokens_.push_back({.type = type, .text = std::move(text), .line = line_});
    return tokens_.back();
  }

  std::size_t spaces_at(std::size_t at) const { return skip_spaces(source_, at) - at; }

  // The text before the next tag, and which tag it is.
  void lex_outside() {
    const std::size_t tag = find_tag(at_);
    const std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (tag == source_.size()) {
      push(TokenType::Data, std::string(text));
      at_ = tag;
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = sign_at(tag + 2);
    const std::size_t raw = kind == '%' ? raw_tag_size(tag) : 0;
    push_text(text, sign, kind == '{');
    advance(tag - at_ + (raw != 0 ? raw : 2 + (sign != '\0' ? 1 : 0)));
    if (raw != 0) {
      lex_raw();
    } else if (kind == '#') {
      skip_comment();
    } else if (kind == '{') {
      push(TokenType::VariableBegin, "{{");
      lex_inside(TokenType::VariableEnd);
    } else {
      push(TokenType::BlockBegin, "{%");
      lex_inside(TokenType::BlockEnd);
    }
  }

  std::size_t find_tag(std::size_t from) const {
    for (std::size_t at = source_.find('{', from); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '%' || next == '{' || next == '#') return at;
    }
    return source_.size();
  }

  char sign_at(std::size_t at) const {
    const char c = at < source_.size() ? source_[at] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  // The size of "{% raw %}" at `tag`, or 0 when it is another tag. The newline after it stays.
  std::size_t raw_tag_size(std::size_t tag) const {
    const std::size_t name = skip_spaces(source_, tag + 2 + (sign_at(tag + 2) != '\0' ? 1 : 0));
    if (source_.compare(name, 3, "raw") != 0) return 0;
    const std::size_t at = skip_spaces(source_, name + 3);
    if (source_.compare(at, 3, "-%}") == 0) return at + 3 + spaces_at(at + 3) - tag;
    return source_.compare(at, 2, "%}") == 0 ? at + 2 - tag : 0;
  }

  // Text up to a tag whose opening has `sign`: "-" strips, "+" keeps, and a block or comment that
  // stands alone on its line loses the indentation before it.
  void push_text(std::string_view text, char sign, bool before_variable) {
    std::string_view kept = text;
    if (sign == '-') {
      kept = kept.substr(0, skip_spaces_back(kept, kept.size()));
    } else if (sign != '+' && !before_variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      const bool starts_line = newline != std::string_view::npos || line_starting_;
      const std::size_t begin = static_cast<std::size_t>(text.data() - source_.data()) + line_begin;
      if (starts_line && spaces_at(begin) >= text.size() - line_begin) {
        kept = text.substr(0, line_begin);
      }
    }
    if (!kept.empty()) push(TokenType::Data, std::string(kept));
  }

  // How many bytes an end tag takes at `at`: "-" eats the whitespace after it, a plain block end
  // eats one newline. 0 when there is none.
  std::size_t end_tag_size(std::size_t at, std::string_view end, bool is_block) const {
    const auto matches = [&](std::size_t from) {
      return from + end.size() <= source_.size() && source_.compare(from, end.size(), end) == 0;
    };
    if (source_[at] == '-' && matches(at + 1)) {
      return 1 + end.size() + spaces_at(at + 1 + end.size());
    }
    if (is_block && source_[at] == '+' && matches(at + 1)) return 1 + end.size();
    if (!matches(at)) return 0;
    const std::size_t after = at + end.size();
    const bool newline = is_block && after < source_.size() && source_[after] == '\n';
    return end.size() + (newline ? 1 : 0);
  }

  void finish_tag(std::size_t bytes) {
    advance(bytes);
    line_starting_ = source_[at_ - 1] == '\n';
  }

  void skip_comment() {
    for (std::size_t at = at_; at < source_.size(); ++at) {
      if (const std::size_t bytes = end_tag_size(at, "#}", true); bytes != 0) {
        finish_tag(at - at_ + bytes);
        return;
      }
    }
    syntax_error("this comment has no end: \"#}\" is missing");
  }

  void lex_raw() {
    line_starting_ = source_[at_ - 1] == '\n';
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      const std::size_t name = skip_spaces(source_, tag + 2 + (sign != '\0' ? 1 : 0));
      if (source_.compare(name, 6, "endraw") != 0) continue;
      const std::size_t at = skip_spaces(source_, name + 6);
      const std::size_t bytes = at < source_.size() ? end_tag_size(at, "%}", true) : 0;
      if (bytes == 0) continue;
      push_text(std::string_view(source_).substr(at_, tag - at_), sign, false);
      finish_tag(at + bytes - at_);
      return;
    }
    syntax_error("a raw block has no end: \"{% endraw %}\" is missing");
  }

  void lex_inside(TokenType end_type) {
    const bool is_block = end_type == TokenType::BlockEnd;
    const std::string_view end = is_block ? "%}" : "}}";
    std::string open;  // closing brackets that are awaited, innermost last
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (const std::size_t bytes = end_tag_size(at_, end, is_block); bytes != 0) {
          push(end_type, std::string(end));
          finish_tag(bytes);
          return;
        }
      }
      if (const std::size_t spaces = spaces_at(at_); spaces != 0) {
        advance(spaces);
      } else if (!lex_number() && !lex_name() && !lex_string()) {
        lex_operator(open);
      }
    }
  }

  bool lex_number() {
    // After a dot a number is an index, so "a.0.1" is not read as a fraction.
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const NumberLiteral literal = read_number(rest(), after_dot);
    if (literal.size == 0) return false;
    if (!literal.good) syntax_error("a number is not decimal or does not fit in 64 bits");
    Token& token = push(literal.is_float ? TokenType::Float : TokenType::Integer, "");
    token.integer = literal.integer;
    token.real = literal.real;
    advance(literal.size);
    return true;
  }

  bool lex_name() {
    std::size_t end = at_;
    while (end < source_.size()) {
      const CodePoint c = decode(source_, end);
      if (!c.valid || !(c.value == U'_' || is_alnum(c.value))) break;
      end += c.size;
    }
    if (end == at_) return false;
    push(TokenType::Name, source_.substr(at_, end - at_));
    advance(end - at_);
    return true;
  }

  bool lex_string() {
    const std::size_t size = string_literal_size(rest());
    if (size == 0) return false;
    std::string text;
    const std::string error = unescape(rest().substr(1, size - 2), text);
    if (!error.empty()) syntax_error(error);
    push(TokenType::String, std::move(text));
    advance(size);
    return true;
  }

  void lex_operator(std::string& open) {
    const auto* const found = std::find_if(kOperators.begin(), kOperators.end(),
                                           [&](std::string_view op) { return looking_at(op); });
    if (found == kOperators.end()) {
      syntax_error(
          fmt::format("unexpected character '{}'", rest().substr(0, decode(source_, at_).size)));
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) syntax_error(fmt::format("unexpected '{}'", c));
      if (open.back() != c) {
        syntax_error(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      }
      open.pop_back();
    }
    push(TokenType::Operator, std::string(*found));
    advance(found->size());
  }

  const std::string source_;
  const std::string& name_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last tag ended with a newline it swallowed
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& name) {
  if (source.size() > kMaxTemplateBytes) {
    fail(Errc::LimitExceeded, "{}: the template has {} bytes, more than {}", name, source.size(),
         kMaxTemplateBytes);
  }
  return Lexer(source, name).run();
}

std::string describe(const Token& token) {
  if (token.type == TokenType::Data) return "text";
  if (token.type == TokenType::String) return "a string";
  if (token.type == TokenType::Integer || token.type == TokenType::Float) return "a number";
  if (token.type == TokenType::End) return "the end of the template";
  return fmt::format("'{}'", token.text);
}

}  // namespace moeflux::jinja
