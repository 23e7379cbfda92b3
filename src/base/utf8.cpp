#include "base/utf8.h"

namespace moeflux {

Utf8Step decode_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {lead, 1, true, false};

  std::size_t n_continuation;
  unsigned char low = 0x80, high = 0xBF;  // allowed range of the second byte
  char32_t code_point;
  if (lead >= 0xC2 && lead <= 0xDF) {
    n_continuation = 1;
    code_point = lead & 0x1Fu;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    n_continuation = 2;
    code_point = lead & 0x0Fu;
    if (lead == 0xE0) low = 0xA0;   // overlong
    if (lead == 0xED) high = 0x9F;  // surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    n_continuation = 3;
    code_point = lead & 0x07u;
    if (lead == 0xF0) low = 0x90;   // overlong
    if (lead == 0xF4) high = 0x8F;  // beyond U+10FFFF
  } else {
    return {0xFFFD, 1, false, false};
  }

  for (std::size_t i = 1; i <= n_continuation; ++i) {
    if (at + i >= text.size()) return {0xFFFD, i, false, true};
    const unsigned char c = byte(at + i);
    if (c < low || c > high) return {0xFFFD, i, false, false};
    low = 0x80;
    high = 0xBF;
    code_point = (code_point << 6) | (c & 0x3Fu);
  }
  return {code_point, n_continuation + 1, true, false};
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    if (!step.valid) return at;
    at += step.length;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    out += step.valid ? text.substr(at, step.length) : kReplacementCharacter;
    at += step.length;
  }
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) {
    out.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
  };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace moeflux
