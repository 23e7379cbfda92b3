#include "text/tokenizer/regex_syntax.h"

#include <array>
#include <cctype>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/regex_class.h"
#include "text/tokenizer/regex_property.h"

namespace moeflux {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view origin) : in_{pattern, 0, origin} {}

  std::string run() {
    while (!in_.at_end()) step();
    return std::move(out_);
  }

 private:
  void step() {
    switch (in_.peek()) {
      case '\\':
        begin_atom();
        return escape();
      case '[':
        begin_atom();
        out_ += translate_class(in_);
        return;
      case '(':
        return open_group();
      case ')':
        close_group();
        return;
      case '*':
      case '+':
      case '?':
        // A further + or ? makes it possessive or lazy in both dialects.
        out_ += in_.take();
        if (!in_.at_end() && (in_.peek() == '+' || in_.peek() == '?')) out_ += in_.take();
        return;
      case '{':
        if (interval()) return;
        begin_atom();
        out_ += "\\{";
        in_.take();
        return;
      default:
        begin_atom();
        out_ += in_.take_character();
    }
  }

  void begin_atom() { atom_ = out_.size(); }

  // x{n,m} and what follows it. PCRE2 reads x{n,m}+ as possessive and x{n}? as lazy; here they
  // repeat the repetition.
  bool interval() {
    const std::size_t start = in_.at;
    in_.take();
    const std::string low = digits();
    bool range = false;
    std::string high;
    if (!in_.at_end() && in_.peek() == ',') {
      in_.take();
      range = true;
      high = digits();
    }
    if (in_.at_end() || in_.peek() != '}' || (low.empty() && high.empty())) {
      in_.at = start;
      return false;  // a literal brace
    }
    in_.take();
    const std::string bounds =
        "{" + (low.empty() ? "0" : low) + (range ? "," + high : std::string()) + "}";
    const char next = in_.at_end() ? '\0' : in_.peek();
    if (next == '+' || (next == '?' && !range)) {
      out_.insert(atom_, "(?:");
      out_ += bounds + ")" + in_.take();
    } else {
      out_ += bounds;
      if (next == '?') out_ += in_.take();
    }
    return true;
  }

  std::string digits() {
    std::string out;
    while (!in_.at_end() && is_digit(in_.peek())) out += in_.take();
    return out;
  }

  void open_group() {
    groups_.push_back(out_.size());
    if (in_.starts_with("(*")) in_.unsupported("(*...)");
    if (in_.starts_with("(?#")) {
      groups_.pop_back();
      while (!in_.at_end() && in_.peek() != ')') in_.take();
      if (!in_.at_end()) in_.take();
      return;
    }
    out_ += in_.take();
    if (in_.at_end() || in_.peek() != '?') return;
    out_ += in_.take();
    // (?imx-imx) and (?imx-imx: ; the m of Oniguruma is the s of PCRE2: the dot matches a newline.
    while (!in_.at_end() &&
           (std::isalpha(static_cast<unsigned char>(in_.peek())) || in_.peek() == '-')) {
      const char flag = in_.take();
      if (flag != 'i' && flag != 'm' && flag != 'x' && flag != '-') {
        in_.unsupported(std::string("(?") + flag);
      }
      out_ += flag == 'm' ? 's' : flag;
    }
    for (const char* marker : {"<=", "<!", "=", "!", ">", ":"}) {
      if (!in_.starts_with(marker)) continue;
      out_ += marker;
      in_.at += std::string_view(marker).size();
      return;
    }
    if (in_.starts_with("<")) {  // a named group
      while (!in_.at_end() && in_.peek() != '>') out_ += in_.take();
      if (!in_.at_end()) out_ += in_.take();
    } else if (in_.starts_with("~")) {
      in_.unsupported("(?~");
    }
  }

  void close_group() {
    if (!groups_.empty()) {
      atom_ = groups_.back();
      groups_.pop_back();
    }
    out_ += in_.take();
  }

  void escape() {
    if (const std::optional<CharSet> set = take_set_escape(in_, SetPlace::Standalone)) {
      out_ += set->standalone();
      return;
    }
    const char c = in_.peek(1);
    switch (c) {
      case 'b':
      case 'B': {
        const std::string word = fmt::format("[{}]", standalone_word_items());
        out_ += c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                         : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
        in_.at += 2;
        return;
      }
      case 'A':
      case 'Z':
      case 'z':
      case 'G':
      case 'R':
      case 'X':
      case 'k':
      case 'g':
        out_ += '\\';
        out_ += c;
        in_.at += 2;
        return;
      default:
        if (c >= '1' && c <= '9') {
          out_ += '\\';
          in_.at += 1;
          out_ += digits();
          return;
        }
        out_ += take_character_escape(in_);
    }
  }

  PatternReader in_;
  std::string out_;
  std::size_t atom_ = 0;             // where in out_ the last atom began
  std::vector<std::size_t> groups_;  // where in out_ the open groups began
};

}  // namespace

std::string to_pcre2_syntax(std::string_view pattern, std::string_view origin) {
  return Translator(pattern, origin).run();
}

}  // namespace moeflux
