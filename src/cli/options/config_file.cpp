#include "cli/options/config_file.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/utf8.h"
#include "cli/command_line.h"

namespace moeflux::cli {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

// "1_000" -> "1000", "+5" -> "5"; "" unless the word is a finite decimal number.
std::string plain_number(std::string_view word) {
  std::string out;
  for (std::size_t i = word.starts_with('+') ? 1 : 0; i < word.size(); ++i) {
    const bool separates = word[i] == '_' && i > 0 && is_digit(word[i - 1]) &&
                           i + 1 < word.size() && is_digit(word[i + 1]);
    if (!separates) out += word[i];
  }
  const std::size_t first = out.starts_with('-') ? 1 : 0;
  double value = 0;
  const char* end = out.data() + out.size();
  if (out.size() <= first || !is_digit(out[first])) return "";
  const auto result = std::from_chars(out.data(), end, value);
  return result.ec == std::errc() && result.ptr == end ? out : "";
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  ConfigText read() {
    if (const std::size_t bad = find_invalid_utf8(text_); bad != std::string_view::npos) {
      line_ += static_cast<int>(std::count(text_.begin(), text_.begin() + bad, '\n'));
      refuse("is not UTF-8 text");
    }
    for (skip_blank_lines(); at_ < text_.size(); skip_blank_lines()) {
      if (peek() == '[') {
        read_section();
      } else {
        read_entry();
      }
      end_line();
    }
    return std::move(out_);
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw UsageError(
        fmt::format("{}:{}: {}", path_, line_, fmt::format(format, std::forward<Args>(args)...)),
        "config");
  }

  char peek(std::size_t ahead = 0) const {  // '\n' at the end: every line ends
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\n';
  }

  void skip_spaces() {
    while (peek() == ' ' || peek() == '\t' || (peek() == '\r' && peek(1) == '\n')) ++at_;
  }

  void skip_comment() {
    skip_spaces();
    if (peek() != '#') return;
    while (peek() != '\n') ++at_;
  }

  void skip_blank_lines() {
    for (skip_comment(); at_ < text_.size() && peek() == '\n'; skip_comment()) {
      ++at_;
      ++line_;
    }
  }

  void end_line() {
    skip_comment();
    if (peek() != '\n') refuse("unexpected {} after the value", here());
  }

  // What stands at this place, for a message.
  std::string here() const {
    const Utf8Step step = decode_utf8(text_, std::min(at_, text_.size() - 1));
    return peek() == '\n' ? "end of the line" : toml_string(text_.substr(at_, step.length));
  }

  std::string read_word() {
    const std::size_t start = at_;
    while (is_word(peek())) ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  void read_section() {
    ++at_;
    skip_spaces();
    const std::string name = read_word();
    skip_spaces();
    if (name.empty() || peek() != ']')
      refuse("a section is the name of a command in brackets, such as [serve]");
    ++at_;
    for (const ConfigSection& other : out_.sections) {
      if (other.name == name) refuse("section [{}] begins in line {} already", name, other.line);
    }
    out_.sections.push_back({name, line_});
  }

  void read_entry() {
    ConfigEntry entry{.section = out_.sections.empty() ? "" : out_.sections.back().name,
                      .key = read_word(),
                      .values = {},
                      .is_list = false,
                      .line = line_};
    if (entry.key.empty()) refuse("expected an option such as ram = \"16G\", not {}", here());
    if (peek() == '.')
      refuse("\"{}.\": a command's options stand in its section [{}]", entry.key, entry.key);
    skip_spaces();
    if (peek() != '=') refuse("expected = after {}, not {}", entry.key, here());
    ++at_;
    skip_spaces();
    entry.is_list = peek() == '[';
    if (entry.is_list) {
      read_list(entry);
    } else {
      entry.values.push_back(read_value(entry.key));
    }
    for (const ConfigEntry& other : out_.entries) {
      if (other.section == entry.section && other.key == entry.key)
        refuse("{} is set in line {} already", entry.key, other.line);
    }
    out_.entries.push_back(std::move(entry));
  }

  void read_list(ConfigEntry& entry) {
    ++at_;
    for (skip_blank_lines(); peek() != ']'; skip_blank_lines()) {
      if (at_ >= text_.size()) refuse("the list {} has no end", entry.key);
      entry.values.push_back(read_value(entry.key));
      skip_blank_lines();
      if (peek() == ']') break;
      if (at_ >= text_.size()) refuse("the list {} has no end", entry.key);
      if (peek() != ',') refuse("expected a comma or ] in the list {}, not {}", entry.key, here());
      ++at_;
    }
    ++at_;
  }

  std::string read_value(const std::string& key) {
    if (text_.substr(at_, 3) == "\"\"\"" || text_.substr(at_, 3) == "'''")
      refuse("{}: a string ends in its line; write \\n for a new one", key);
    if (peek() == '"') return read_string(key);
    if (peek() == '\'') return read_literal(key);
    if (peek() == '[' || peek() == '{') refuse("{}: a list holds plain values only", key);
    const std::size_t start = at_;
    while (std::string_view(" \t\r\n,]#").find(peek()) == std::string_view::npos) ++at_;
    const std::string word(text_.substr(start, at_ - start));
    if (word.empty()) refuse("{}: the value is missing", key);
    if (word == "true" || word == "false") return word;
    const std::string number = plain_number(word);
    if (number.empty()) refuse("{}: text needs quotes: {} = {}", key, key, toml_string(word));
    return number;
  }

  std::string read_literal(const std::string& key) {
    const std::size_t start = ++at_;
    for (; peek() != '\''; ++at_) {
      if (peek() == '\n') refuse("{}: the string has no closing quote", key);
    }
    return std::string(text_.substr(start, at_++ - start));
  }

  std::string read_string(const std::string& key) {
    std::string out;
    for (++at_; peek() != '"'; ++at_) {
      if (peek() == '\n') refuse("{}: the string has no closing quote", key);
      if (peek() != '\\') {
        out += peek();
      } else {
        ++at_;
        append_escaped(out, key);
      }
    }
    ++at_;
    return out;
  }

  void append_escaped(std::string& out, const std::string& key) {
    constexpr std::string_view kLetters = "btnfr\"\\", kMeanings = "\b\t\n\f\r\"\\";
    if (const std::size_t i = kLetters.find(peek()); i != std::string_view::npos) {
      out += kMeanings[i];
      return;
    }
    const std::size_t n_digits = peek() == 'u' ? 4 : peek() == 'U' ? 8 : 0;
    const std::string_view digits = text_.substr(std::min(at_ + 1, text_.size()), n_digits);
    std::uint32_t code = 0;
    const char* end = digits.data() + digits.size();
    const auto result = std::from_chars(digits.data(), end, code, 16);
    const bool is_character = code != 0 && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (n_digits == 0 || digits.size() != n_digits || result.ptr != end || !is_character)
      refuse("{}: \\{} is no escape; for a backslash write \\\\ or use 'single quotes'", key,
             peek());
    append_utf8(out, code);
    at_ += n_digits;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  int line_ = 1;
  ConfigText out_;
};

}  // namespace

ConfigText parse_config(std::string_view text, const std::string& path) {
  return Reader(text, path).read();
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += fmt::format("\\{}", c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace moeflux::cli
