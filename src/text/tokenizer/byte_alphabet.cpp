#include "text/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace moeflux {
namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr int kStandIns = 68;

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kFirstStandIn + kStandIns> byte{};  // -1: not in the alphabet

  constexpr Alphabet() {
    byte.fill(-1);
    char32_t stand_in = kFirstStandIn;
    for (unsigned b = 0; b < 256; ++b) {
      const bool visible = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
      character[b] = visible ? b : stand_in++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

std::string bytes_to_visible(std::string_view bytes) {
  std::string visible;
  visible.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    append_utf8(visible, kAlphabet.character[static_cast<unsigned char>(c)]);
  }
  return visible;
}

std::optional<std::string> visible_to_bytes(std::string_view visible) {
  std::string bytes;
  bytes.reserve(visible.size());
  for (std::size_t at = 0; at < visible.size();) {
    const Utf8Step step = decode_utf8(visible, at);
    if (!step.valid || step.code_point >= kAlphabet.byte.size()) return std::nullopt;
    const std::int16_t byte = kAlphabet.byte[step.code_point];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(static_cast<unsigned char>(byte)));
    at += step.length;
  }
  return bytes;
}

}  // namespace moeflux
