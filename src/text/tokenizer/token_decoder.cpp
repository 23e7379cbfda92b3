#include "text/tokenizer/token_decoder.h"

#include <charconv>

#include "text/tokenizer/byte_alphabet.h"

namespace moeflux {

std::string TokenDecoder::to_bytes(std::string_view token) const {
  std::string text(token);
  for (const auto& [what, by] : replacements) {
    for (std::size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + by.size())) {
      text.replace(at, what.size(), by);
    }
  }
  if (byte_fallback && text.size() == 6 && text.starts_with("<0x") && text.ends_with('>')) {
    unsigned char byte = 0;
    const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
    if (error == std::errc() && end == text.data() + 5) return {static_cast<char>(byte)};
  }
  if (byte_level) {
    if (auto bytes = visible_to_bytes(text)) return *std::move(bytes);
  }
  return text;
}

}  // namespace moeflux
