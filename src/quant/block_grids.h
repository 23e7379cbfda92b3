// The tables of the IQ blocks (quant/block_codec.h): points of 8 or 4 numbers that share a code, a
// byte for each number, and signs as bytes that are 0xFF for minus.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace moeflux {

extern const std::array<std::uint64_t, 2048> kGridIq1;    // -1, 0, 1
extern const std::array<std::uint64_t, 256> kGridIq2Xxs;  // 8, 25, 43
extern const std::array<std::uint64_t, 512> kGridIq2Xs;   // the same
extern const std::array<std::uint64_t, 1024> kGridIq2S;   // the same
extern const std::array<std::uint32_t, 256> kGridIq3Xxs;  // 4, 12, 20, 28, 36, 44, 52, 62
extern const std::array<std::uint32_t, 512> kGridIq3S;    // 1, 3, 5, ... 15

// Of 8 numbers: from 7 bits, with an even number of minuses, and from 8 bits.
extern const std::array<std::uint64_t, 128> kEvenSigns;
extern const std::array<std::uint64_t, 256> kSigns;

}  // namespace moeflux
