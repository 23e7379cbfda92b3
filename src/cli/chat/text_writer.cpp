// Styled text laid out for a terminal.
#include "base/utf8.h"
#include "cli/chat/markdown.h"
#include "cli/terminal/terminal.h"

namespace moeflux::cli {
namespace {

constexpr std::string_view kPlain = "\033[0m";

std::string escape_code(const TextStyle& style) {
  std::string codes;
  if (style.bold) codes += ";1";
  if (style.dim) codes += ";2";
  if (style.italic) codes += ";3";
  if (style.underlined) codes += ";4";
  if (style.code) codes += ";36";
  return codes.empty() ? "" : "\033[" + codes.substr(1) + "m";
}

}  // namespace

void TextWriter::emit(std::string_view text, const TextStyle& style) {
  if (style != current_) {
    if (current_ != TextStyle()) out_ += kPlain;
    out_ += escape_code(style);
    current_ = style;
  }
  out_ += text;
}

void TextWriter::put(std::string_view character, const TextStyle& style) {
  const int width = text_columns(character);
  if (!breaks_ || width_ == 0) {
    end_word();
    emit(character, style);
    column_ += width == 0 ? 1 : width;
    return;
  }
  if (character == " " || character == "\t") {
    end_word();
    // Spaces are held back: nobody needs them where a line ends.
    ++n_spaces_;
    return;
  }
  // Wide characters stand for themselves: a line may be broken at each.
  if (width == 2) end_word();
  if (word_.empty() || word_.back().first != style) word_.emplace_back(style, "");
  word_.back().second += character;
  word_width_ += width;
  if (width == 2 || word_width_ >= width_) end_word();
}

void TextWriter::put_all(std::string_view text, const TextStyle& style) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = decode_utf8(text, at).length;
    put(text.substr(at, length), style);
    at += length;
  }
}

void TextWriter::end_word() {
  if (word_.empty()) {
    if (!breaks_ && n_spaces_ > 0) {
      emit(std::string(static_cast<std::size_t>(n_spaces_), ' '), current_);
      column_ += std::exchange(n_spaces_, 0);
    }
    return;
  }
  if (column_ > prefix_width_ && column_ + n_spaces_ + word_width_ > width_) break_line();
  if (n_spaces_ > 0) {
    // Between two pieces of one style the space has it too.
    const TextStyle& style = word_.front().first == current_ ? current_ : TextStyle();
    emit(std::string(static_cast<std::size_t>(n_spaces_), ' '), style);
    column_ += std::exchange(n_spaces_, 0);
  }
  for (const auto& [style, text] : word_) emit(text, style);
  column_ += word_width_;
  if (column_ > width_) column_ %= width_;  // the terminal has broken it
  word_.clear();
  word_width_ = 0;
}

void TextWriter::break_line() {
  n_spaces_ = 0;
  emit("", TextStyle());
  out_ += '\n';
  column_ = prefix_width_;
  if (!prefix_.empty()) emit(prefix_, prefix_style_);
}

void TextWriter::newline() {
  end_word();
  n_spaces_ = 0;
  emit("", TextStyle());
  out_ += '\n';
  column_ = 0;
  breaks_ = true;
  continue_with("", {});
}

void TextWriter::flush() {
  end_word();
  emit("", TextStyle());
}

void TextWriter::continue_with(std::string prefix, const TextStyle& style) {
  prefix_ = std::move(prefix);
  prefix_style_ = style;
  prefix_width_ = text_columns(prefix_);
}

}  // namespace moeflux::cli
