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
  static constexpr int kPieceFours = kFours;
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

// E2M1 numbers: doubled, and 12 added to them. A piece is half as long as others.
struct PackedFp4 {
  static constexpr int kPieceFours = kFours / 2;
  static constexpr int kPieceBytes = Packed<4>::kPieceBytes / 2;
  static constexpr int kRun = kPieceFours;

  static __m256i four(const std::byte* piece, int k) noexcept {
    const __m256i numbers = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    return _mm256_shuffle_epi8(numbers, Packed<4>::four(piece, k));
  }
};

// The same as bytes in scratch.
template <class Codes>
struct Opened {
  static constexpr int kPieceFours = Codes::kPieceFours;
  static constexpr int kPieceBytes = kPieceFours * kLine;
  static constexpr int kRun = Codes::kRun;

  static __m256i four(const std::byte* piece, int k) noexcept { return load(piece + k * kLine); }
};

template <class Codes>
void open_tile(const std::byte* from, std::int64_t cols, std::byte* to) noexcept {
  constexpr int kPieceFours = Codes::kPieceFours;
  for (std::int64_t c = 0; c < cols; c += 4 * kPieceFours, from += Codes::kPieceBytes) {
    prefetch<Codes::kPieceBytes>(from);
#pragma GCC unroll 2
    for (int half = 0; half < kLine; half += kHalf) {
#pragma GCC unroll 8
      for (int k = 0; k < kPieceFours; ++k) {
        store(to + (c / 4 + k) * kLine + half, Codes::four(from + half, k));
      }
    }
  }
}

__m128i load_8(const std::byte* bytes) noexcept {
  return _mm_loadl_epi64(static_cast<const __m128i*>(at(bytes, 0)));
}

// E8M0: the bits of an exponent; that of 2^-127 is one of subnormal numbers. NaN becomes infinite.
__m256 load_e8m0(const std::byte* bytes) noexcept {
  const __m256i exponents = _mm256_slli_epi32(_mm256_cvtepu8_epi32(load_8(bytes)), 23);
  return _mm256_castsi256_ps(_mm256_max_epu32(exponents, _mm256_set1_epi32(0x00400000)));
}

// E4M3, as a half float of the same bits: 256 times too small.
__m256 load_e4m3(const std::byte* bytes) noexcept {
  const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(load_8(bytes)), 7);
  return _mm256_cvtph_ps(_mm_and_si128(wide, _mm_set1_epi16(static_cast<short>(0xBF80))));
}

// Scales or biases of group g, of 8 rows.
__m256 load_scales(DType dtype, const std::byte* plane, std::int64_t g, int half) noexcept {
  const std::int64_t first = g * kTileRows + half * 8;
  if (dtype == DType::U8) return load_e8m0(plane + first);
  if (dtype == DType::F8E4M3) return load_e4m3(plane + first);
  if (dtype == DType::F32) {
    return _mm256_loadu_ps(static_cast<const float*>(at(plane, first * 4)));
  }
  __m128i raw;
  std::memcpy(&raw, plane + first * 2, sizeof raw);
  if (dtype == DType::F16) return _mm256_cvtph_ps(raw);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}

// Of group g, which has these scales.
__m256 load_biases(const WeightFormat& format, const RoundedTile& tile, std::int64_t g, int half,
                   __m256 scales) noexcept {
  if (format.zero == AffineZero::Bias) return load_scales(format.scale_dtype, tile.biases, g, half);
  const __m256i zeros = format.zero == AffineZero::MidCode
                            ? _mm256_set1_epi32(1 << (format.bits - 1))
                            : _mm256_cvtepu8_epi32(load_8(tile.biases + g * kTileRows + half * 8));
  return _mm256_mul_ps(scales, _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_setzero_si256(), zeros)));
}

}  // namespace
}  // namespace moeflux::cpu
