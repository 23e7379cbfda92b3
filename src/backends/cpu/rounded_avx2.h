// Tiles (quant/interleave.h) for AVX2: codes of 8 rows as bytes, scales and biases as floats.
// Included only by the file of the fast path; everything here has internal linkage, and nothing is
// included that could be instantiated here and linked into code for other processors.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/rounded_passes.h"

namespace moeflux::cpu {
namespace {

constexpr int kHalf = 32;  // bytes of a register: a dword of each of 8 rows

const void* at(const std::byte* base, std::int64_t offset) noexcept {
  return base + offset;
}
__m256i load(const std::byte* from) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(at(from, 0)));
}
void store(std::byte* to, __m256i value) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to)), value);
}
__m256i in_all_lanes(const std::byte* dword) noexcept {
  int value;
  std::memcpy(&value, dword, sizeof value);
  return _mm256_set1_epi32(value);
}

// The codes of a tile.
template <int Bits>
struct Packed {
  static constexpr int kPieceBytes = Bits * kLine;
  // How many sums of two products, up to 8, fit into 16 bits when added; none for 8 bits.
  static constexpr int kRun = Bits <= 4 ? 8 : Bits == 5 ? 4 : Bits == 6 ? 2 : 0;

  // The k-th four of each row of a piece, in the order of RoundedLayout::place().
  static __m256i four(const std::byte* piece, int k) noexcept {
    if constexpr (Bits == 8) {
      return load(piece + k * kLine);
    } else if constexpr (Bits == 2 || Bits == 4) {
      constexpr int kSteps = 8 / Bits;
      const __m256i dword = load(piece + k / kSteps * kLine);
      return _mm256_and_si256(_mm256_srli_epi16(dword, k % kSteps * Bits),
                              _mm256_set1_epi8((1 << Bits) - 1));
    } else {
      const int bit = k * 4 * Bits, shift = bit % 32;
      const std::byte* from = piece + bit / 32 * kLine;
      __m256i codes = _mm256_srli_epi32(load(from), shift);
      if (shift + 4 * Bits > 32) {
        codes = _mm256_or_si256(codes, _mm256_slli_epi32(load(from + kLine), 32 - shift));
      }
      return spread(codes);
    }
  }

 private:
  // Four codes of a lane: two to each half of it, then one to each byte.
  static __m256i spread(__m256i codes) noexcept {
    constexpr int kOne = (1 << Bits) - 1, kTwo = (1 << 2 * Bits) - 1;
    const __m256i two = _mm256_or_si256(
        _mm256_and_si256(codes, _mm256_set1_epi32(kTwo)),
        _mm256_and_si256(_mm256_slli_epi32(codes, 16 - 2 * Bits), _mm256_set1_epi32(kTwo << 16)));
    return _mm256_or_si256(
        _mm256_and_si256(two, _mm256_set1_epi16(kOne)),
        _mm256_and_si256(_mm256_slli_epi16(two, 8 - Bits), _mm256_set1_epi16(kOne << 8)));
  }
};

// The same as bytes in scratch.
template <int Bits>
struct Opened {
  static constexpr int kPieceBytes = kFours * kLine;
  static constexpr int kRun = Packed<Bits>::kRun;

  static __m256i four(const std::byte* piece, int k) noexcept { return load(piece + k * kLine); }
};

template <int Bits>
void open_tile(const std::byte* from, std::int64_t cols, std::byte* to) noexcept {
  for (std::int64_t c = 0; c < cols; c += kPiece, from += Packed<Bits>::kPieceBytes) {
    prefetch<Packed<Bits>::kPieceBytes>(from);
#pragma GCC unroll 2
    for (int half = 0; half < kLine; half += kHalf) {
#pragma GCC unroll 8
      for (int k = 0; k < kFours; ++k) {
        store(to + (c / 4 + k) * kLine + half, Packed<Bits>::four(from + half, k));
      }
    }
  }
}

// Scales or biases of group g, of 8 rows.
__m256 load_scales(DType dtype, const std::byte* plane, std::int64_t g, int half) noexcept {
  const std::int64_t first = g * kTileRows + half * 8;
  if (dtype == DType::F32) {
    return _mm256_loadu_ps(static_cast<const float*>(at(plane, first * 4)));
  }
  __m128i raw;
  std::memcpy(&raw, plane + first * 2, sizeof raw);
  if (dtype == DType::F16) return _mm256_cvtph_ps(raw);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}

}  // namespace
}  // namespace moeflux::cpu
