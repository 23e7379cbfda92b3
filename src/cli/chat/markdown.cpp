#include "cli/chat/markdown.h"

#include <algorithm>

#include "base/utf8.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kBullet = "\xE2\x80\xA2 ";   // U+2022
constexpr std::string_view kQuote = "\xE2\x94\x82 ";    // U+2502
constexpr std::string_view kRuleMark = "\xE2\x94\x80";  // U+2500
constexpr int kRuleWidth = 40;
constexpr std::size_t kMaxDigits = 9;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

constexpr std::size_t kNone = std::string_view::npos;

bool is_letter(char c) {  // or a digit, or a part of a character that is not ASCII
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80);
}

bool is_punctuation(char c) {
  return c > ' ' && c < 0x7F && !is_letter(c);
}

// What a single asterisk must stand before to be emphasis and not a wildcard or a product.
bool begins_emphasis(char c) {
  return is_letter(c) || std::string_view("\"'([`*_").find(c) != kNone;
}

// Where the run of exactly `length` backquotes begins that ends a code span; kNone: there is none.
std::size_t find_code_end(std::string_view text, std::size_t from, std::size_t length) {
  for (std::size_t at = text.find('`', from); at != kNone; at = text.find('`', at)) {
    const std::size_t run = run_length(text, at);
    if (run == length) return at;
    at += run;
  }
  return kNone;
}

struct Closing {
  std::size_t at = kNone;  // where the content ends
  bool certain = true;     // false: more text decides
};

// The partner of a run of `length` characters `mark` that `line` begins with.
Closing find_closing(std::string_view line, bool complete, std::size_t length) {
  const char mark = line[0];
  for (std::size_t at = length; at < line.size();) {
    if (line[at] == '\\') {
      at += 2;
    } else if (line[at] == '`') {
      const std::size_t run = run_length(line, at);
      const std::size_t end = find_code_end(line, at + run, run);
      if ((end == kNone || end + run == line.size()) && !complete) return {kNone, false};
      at = end == kNone ? at + run : end + run;
    } else if (line[at] == mark) {
      const std::size_t run = run_length(line, at);
      if (at + run == line.size() && !complete) return {kNone, false};
      const bool fits = run == length || run == 3;  // three: an inner span ends here as well
      const bool closes = line[at - 1] != ' ' && at > length &&
                          (at + run == line.size() || !is_letter(line[at + run]));
      if (fits && closes) return {at + run - length, true};
      at += run;
    } else {
      ++at;
    }
  }
  return {kNone, complete};
}

}  // namespace

std::string MarkdownRenderer::feed(std::string_view text) {
  pending_ += safe_.feed(text);
  process();
  return writer_.take();
}

std::string MarkdownRenderer::finish() {
  pending_ += safe_.finish();
  finishing_ = true;
  process();
  writer_.flush();
  finishing_ = false;
  fence_ = 0;
  bold_open_ = false;
  code_open_ = 0;
  return writer_.take();
}

MarkdownRenderer::View MarkdownRenderer::view() const {
  const std::string_view seen = std::string_view(pending_).substr(0, kMaxHeld);
  const std::size_t newline = seen.find('\n');
  const bool all = finishing_ && pending_.size() <= kMaxHeld;
  View view;
  view.line = seen.substr(0, newline);
  view.ends = newline != std::string_view::npos || all;
  view.complete = view.ends || pending_.size() >= kMaxHeld;
  return view;
}

void MarkdownRenderer::process() {
  while (!pending_.empty()) {
    if (line_ == Line::Start ? !begin_line() : !step()) return;
  }
}

void MarkdownRenderer::consume_line(const View& view) {
  pending_.erase(0, std::min(view.line.size() + 1, pending_.size()));
}

bool MarkdownRenderer::begin_line() {
  const View view = this->view();
  if (fence_ != 0) return in_fence(view);
  const std::size_t indent = std::min(view.line.find_first_not_of(' '), view.line.size());
  const std::string_view rest = view.line.substr(indent);
  if (rest.empty()) {
    if (!view.complete) return false;
    begin_paragraph(view.line, indent, 0);
    return true;
  }
  if ((rest[0] == '`' || rest[0] == '~') &&
      (run_length(rest, 0) >= 3 || (run_length(rest, 0) == rest.size() && !view.complete))) {
    return open_fence(view, indent);
  }
  if ((rest[0] == '-' || rest[0] == '*' || rest[0] == '_') &&
      rest.find_first_not_of(std::string{rest[0], ' '}) == std::string_view::npos) {
    return rule(view, indent);
  }
  if (rest[0] == '#' || rest[0] == '>' || rest[0] == '+' || is_digit(rest[0])) {
    // The marker and the character after it.
    const std::size_t end = rest[0] == '#'      ? run_length(rest, 0)
                            : is_digit(rest[0]) ? rest.find_first_not_of("0123456789") + 1
                                                : 1;
    const bool digits_only = end == 0;  // npos + 1
    if ((digits_only || end >= rest.size()) && !view.complete) return false;
  }
  begin_paragraph(view.line, indent, list_marker(rest));
  return true;
}

// Of the line without its indentation: the length of what makes it an item of a list, with the
// space; 0: it is none.
std::size_t MarkdownRenderer::list_marker(std::string_view line) const {
  if (line.size() >= 2 && (line[0] == '-' || line[0] == '*' || line[0] == '+') && line[1] == ' ')
    return 2;
  const std::size_t digits = std::min(line.find_first_not_of("0123456789"), line.size());
  if (digits == 0 || digits > kMaxDigits || digits + 1 >= line.size()) return 0;
  if ((line[digits] != '.' && line[digits] != ')') || line[digits + 1] != ' ') return 0;
  return digits + 2;
}

void MarkdownRenderer::begin_paragraph(std::string_view line, std::size_t indent,
                                       std::size_t marker) {
  const std::string margin(indent, ' ');
  const std::string_view rest = line.substr(indent);
  const std::size_t hashes = rest.empty() || rest[0] != '#' ? 0 : run_length(rest, 0);
  std::size_t used = 0;
  line_ = Line::Text;
  line_style_ = {};
  previous_ = ' ';
  if (!rest.empty() && rest[0] == '|') {
    line_ = Line::AsIs;
    writer_.as_it_is();
  } else if (hashes >= 1 && hashes <= 6 && rest.size() > hashes && rest[hashes] == ' ') {
    line_style_ = {.bold = true, .underlined = hashes == 1};
    used = indent + hashes + 1;
  } else if (!rest.empty() && rest[0] == '>') {
    writer_.put_all(margin, {});
    writer_.put_all(kQuote, {.dim = true});
    writer_.continue_with(margin + std::string(kQuote), {.dim = true});
    used = indent + (rest.size() > 1 && rest[1] == ' ' ? 2 : 1);
  } else if (marker > 0) {
    const bool numbered = is_digit(rest[0]);
    writer_.put_all(margin, {});
    writer_.put_all(numbered ? rest.substr(0, marker) : kBullet, {});
    writer_.continue_with(std::string(indent + (numbered ? marker : 2), ' '), {});
    used = indent + marker;
  } else {
    writer_.put_all(margin, {});
    writer_.continue_with(margin, {});
    used = indent;
  }
  pending_.erase(0, used);
}

bool MarkdownRenderer::in_fence(const View& view) {
  const std::size_t indent = std::min(view.line.find_first_not_of(' '), view.line.size());
  const std::string_view rest = view.line.substr(indent);
  const std::size_t length = rest.empty() || rest[0] != fence_ ? 0 : run_length(rest, 0);
  const bool only_spaces_follow = rest.find_first_not_of(' ', length) == std::string_view::npos;
  if (only_spaces_follow && !view.complete) return false;
  if (only_spaces_follow && length >= fence_length_ && view.ends) {
    fence_ = 0;
    consume_line(view);
    return true;
  }
  line_ = Line::AsIs;
  line_style_ = {.code = true};
  writer_.as_it_is();
  return true;
}

bool MarkdownRenderer::open_fence(const View& view, std::size_t indent) {
  if (!view.complete) return false;
  const std::string_view rest = view.line.substr(indent);
  const std::size_t length = run_length(rest, 0);
  const bool is_inline = rest[0] == '`' && rest.find('`', length) != std::string_view::npos;
  if (length < 3 || is_inline || !view.ends) {
    begin_paragraph(view.line, indent, 0);
    return true;
  }
  fence_ = rest[0];
  fence_length_ = length;
  consume_line(view);
  return true;
}

bool MarkdownRenderer::rule(const View& view, std::size_t indent) {
  if (!view.complete) return false;
  const std::string_view rest = view.line.substr(indent);
  if (std::count(rest.begin(), rest.end(), rest[0]) < 3 || !view.ends) {
    begin_paragraph(view.line, indent, list_marker(rest));
    return true;
  }
  const int n = width_ == 0 ? kRuleWidth : std::min(kRuleWidth, width_);
  for (int i = 0; i < n; ++i) writer_.put(kRuleMark, {.dim = true});
  pending_.erase(0, view.line.size());
  line_ = Line::Text;
  return true;
}

void MarkdownRenderer::end_line() {
  writer_.newline();
  line_ = Line::Start;
  line_style_ = {};
  bold_open_ = false;
  code_open_ = 0;
}

bool MarkdownRenderer::step() {
  if (pending_[0] == '\n') {
    end_line();
    pending_.erase(0, 1);
    return true;
  }
  if (line_ == Line::AsIs) {
    const std::size_t length = decode_utf8(pending_, 0).length;
    writer_.put(std::string_view(pending_).substr(0, length), line_style_);
    pending_.erase(0, length);
    return true;
  }
  TextStyle style = line_style_;
  style.bold = style.bold || bold_open_;
  const std::size_t length = code_open_ > 0 ? rest_of_code(view()) : inline_step(view(), style);
  pending_.erase(0, length);
  return length > 0;
}

std::size_t MarkdownRenderer::literal(std::string_view text, std::size_t length,
                                      const TextStyle& style) {
  writer_.put_all(text.substr(0, length), style);
  previous_ = text[length - 1];
  return length;
}

void MarkdownRenderer::show_all(std::string_view text, const TextStyle& style) {
  while (!text.empty())
    text.remove_prefix(inline_step({.line = text, .ends = true, .complete = true}, style));
}

std::size_t MarkdownRenderer::inline_step(const View& view, const TextStyle& style) {
  const std::string_view line = view.line;
  switch (line[0]) {
    case '`':
      return code_span(view, style);
    case '*':
    case '_':
      return emphasis(view, style);
    case '\\':
      if (line.size() < 2 && !view.complete) return 0;
      if (line.size() >= 2 && is_punctuation(line[1])) {
        literal(line.substr(1), 1, style);
        return 2;
      }
      return literal(line, 1, style);
    default:
      return literal(line, decode_utf8(line, 0).length, style);
  }
}

std::size_t MarkdownRenderer::code_span(const View& view, const TextStyle& style) {
  const std::string_view line = view.line;
  const std::size_t length = run_length(line, 0);
  const std::size_t end = find_code_end(line, length, length);
  // A run at the very end of what is known may still grow.
  const bool certain = end != kNone && (end + length < line.size() || view.complete);
  TextStyle code = style;
  code.code = true;
  if (certain) {
    std::string_view content = line.substr(length, end - length);
    // One space on both sides is there only to keep backquotes apart.
    if (content.size() > 2 && content.front() == ' ' && content.back() == ' ')
      content = content.substr(1, content.size() - 2);
    writer_.put_all(content, code);
    previous_ = '`';
    return end + length;
  }
  if (!view.complete) return 0;
  if (view.ends || length == line.size()) return literal(line, length, style);
  code_open_ = length;
  return length;
}

std::size_t MarkdownRenderer::rest_of_code(const View& view) {
  const std::string_view line = view.line;
  TextStyle code = line_style_;
  code.code = true;
  if (line[0] != '`') return literal(line, decode_utf8(line, 0).length, code);
  const std::size_t length = run_length(line, 0);
  if (length == line.size() && !view.complete) return 0;
  if (length != code_open_) return literal(line, length, code);
  code_open_ = 0;
  previous_ = '`';
  return length;
}

std::size_t MarkdownRenderer::emphasis(const View& view, const TextStyle& style) {
  const std::string_view line = view.line;
  const std::size_t length = run_length(line, 0);
  if (length == line.size() && !view.complete) return 0;
  const char next = length < line.size() ? line[length] : ' ';
  if (bold_open_ && length == 2 && previous_ != ' ') {
    bold_open_ = false;
    previous_ = line[0];
    return length;
  }
  const bool opens =
      length <= 3 && next != ' ' && !is_letter(previous_) && (length > 1 || begins_emphasis(next));
  if (!opens) return literal(line, length, style);
  const Closing closing = find_closing(line, view.complete, length);
  if (!closing.certain) return 0;
  if (closing.at != kNone) {
    TextStyle inner = style;
    inner.italic = inner.italic || length != 2;
    inner.bold = inner.bold || length >= 2;
    previous_ = ' ';
    show_all(line.substr(length, closing.at - length), inner);
    previous_ = line[0];
    return closing.at + length;
  }
  if (view.ends || length == 1) return literal(line, length, style);
  bold_open_ = true;
  previous_ = ' ';
  return length;
}

}  // namespace moeflux::cli
