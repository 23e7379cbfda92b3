#include "cli/chat/safe_text.h"

#include <algorithm>

#include <utf8proc.h>

#include "base/utf8.h"

namespace moeflux::cli {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
constexpr char32_t kPictures = 0x2400;  // of the control characters, in their order
constexpr char32_t kPictureOfDelete = 0x2421;

bool turns_writing(char32_t c) {
  return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

char32_t visible(char32_t c) {
  if (c == U'\n' || c == U'\t') return c;
  if (c < 0x20) return kPictures + c;
  if (c == 0x7F) return kPictureOfDelete;
  if ((c >= 0x80 && c < 0xA0) || turns_writing(c)) return kReplacement;
  return c;
}

}  // namespace

std::string SafeText::convert(bool at_end) {
  std::string out;
  std::size_t at = 0;
  while (at < held_.size()) {
    const Utf8Step step = decode_utf8(held_, at);
    const bool last = at + step.length >= held_.size();
    // More bytes may complete a character, or make "\r" a part of a newline.
    if (!at_end && last && (step.truncated || held_[at] == '\r')) break;
    const bool in_newline = held_[at] == '\r' && !last && held_[at + 1] == '\n';
    if (!in_newline) append_utf8(out, step.valid ? visible(step.code_point) : kReplacement);
    at += step.length;
  }
  held_.erase(0, at);
  return out;
}

std::string SafeText::feed(std::string_view bytes) {
  held_ += bytes;
  return convert(/*at_end=*/false);
}

std::string SafeText::finish() {
  return convert(/*at_end=*/true);
}

std::string safe_text(std::string_view text) {
  SafeText safe;
  std::string out = safe.feed(text);
  return out += safe.finish();
}

std::string safe_line(std::string_view text) {
  std::string out;
  for (const char c : safe_text(text)) {
    if (c == '\n' || c == '\t') {
      append_utf8(out, kPictures + static_cast<char32_t>(c));
    } else {
      out += c;
    }
  }
  return out;
}

int column_width(char32_t code_point) {
  return std::clamp(utf8proc_charwidth(static_cast<utf8proc_int32_t>(code_point)), 0, 2);
}

}  // namespace moeflux::cli
