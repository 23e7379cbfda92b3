// Markup within a line: code, emphasis and what stands after a backslash.
#include "base/utf8.h"
#include "cli/chat/markdown.h"

namespace moeflux::cli {
namespace {

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

}  // namespace

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

namespace {

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
