// The fast path for AVX-512 (F, BW, DQ, VL): what its files share. Included only by those;
// everything here has internal linkage, and nothing is included that could be instantiated here and
// linked into code for other processors.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/rounded.h"
#include "backends/cpu/rounded_factors.h"
#include "backends/cpu/with_format.h"

namespace moeflux::cpu {

void rounded_quantize_avx512(const RoundedLayout& layout, const float* x, std::byte* out) noexcept;

namespace {

// How far ahead codes are asked for: more than the processor does by itself.
constexpr std::int64_t kAhead = 4 << 10;
constexpr auto kAheadHint = _MM_HINT_T0;

const void* at(const std::byte* base, std::int64_t offset) noexcept {
  return base + offset;
}

__m128i load_16(const std::byte* bytes) noexcept {
  return _mm_loadu_si128(static_cast<const __m128i*>(at(bytes, 0)));
}

__mmask16 first_lanes(std::int64_t n) noexcept {
  return static_cast<__mmask16>((1u << n) - 1);
}

// The codes of a tile as bytes, from the smallest number of dwords that holds whole ones: register
// k has 4 of each row, in the order of RoundedLayout::place().
template <int Bits>
struct CodeUnit {
  static constexpr int kDwords = Bits == 8 || Bits == 4 || Bits == 2 ? 1 : Bits == 5 ? 5 : 3;
  static constexpr int kRegisters = kDwords * 8 / Bits;
  static constexpr int kBytes = kDwords * 64;

  static void load(const std::byte* from, __m512i (&out)[kRegisters]) noexcept {
    __m512i dwords[kDwords];
#pragma GCC unroll 5
    for (int d = 0; d < kDwords; ++d) dwords[d] = _mm512_loadu_si512(at(from, d * 64));
#pragma GCC unroll 8
    for (int k = 0; k < kRegisters; ++k) {
      if constexpr (Bits == 8) {
        out[k] = dwords[0];
      } else if constexpr (kDwords == 1) {  // every byte has a code at bit k * Bits
        const __m512i moved =
            k == 0 ? dwords[0] : _mm512_srli_epi16(dwords[0], static_cast<unsigned>(k * Bits));
        out[k] = _mm512_and_si512(moved, _mm512_set1_epi8((1 << Bits) - 1));
      } else {
        out[k] = spread(dwords, k * 4 * Bits);
      }
    }
  }

 private:
  // Four codes from bit `bit` on.
  static __m512i spread(const __m512i (&dwords)[kDwords], int bit) noexcept {
    const int first = bit / 32, shift = bit % 32;
    __m512i four = _mm512_srli_epi32(dwords[first], static_cast<unsigned>(shift));
    if (shift + 4 * Bits > 32) {
      four = _mm512_or_si512(four, _mm512_slli_epi32(dwords[first + 1 < kDwords ? first + 1 : 0],
                                                     static_cast<unsigned>(32 - shift)));
    }
    constexpr int kChoose = 0xCA;  // bits of the second where the first has ones, else of the third
    const __m512i two = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xFFFF), four,
                                                  _mm512_slli_epi32(four, 16 - 2 * Bits), kChoose);
    const __m512i one = _mm512_ternarylogic_epi32(_mm512_set1_epi16(0xFF), two,
                                                  _mm512_slli_epi16(two, 8 - Bits), kChoose);
    return _mm512_and_si512(one, _mm512_set1_epi8((1 << Bits) - 1));
  }
};

// Codes of E2M1 numbers as bytes: the numbers doubled, and 12 added to them.
struct Fp4Unit {
  static constexpr int kRegisters = 2;
  static constexpr int kBytes = 64;

  static void load(const std::byte* from, __m512i (&out)[kRegisters]) noexcept {
    const __m512i numbers = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    CodeUnit<4>::load(from, out);
    for (__m512i& codes : out) codes = _mm512_shuffle_epi8(numbers, codes);
  }
};

// E8M0: the bits of an exponent; that of 2^-127 is one of subnormal numbers. NaN becomes infinite.
__m512 load_e8m0(const std::byte* bytes) noexcept {
  const __m512i wide = _mm512_cvtepu8_epi32(load_16(bytes));
  return _mm512_castsi512_ps(
      _mm512_max_epu32(_mm512_slli_epi32(wide, 23), _mm512_set1_epi32(0x00400000)));
}

// E4M3, as a half float of the same bits: 256 times too small.
__m512 load_e4m3(const std::byte* bytes) noexcept {
  const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load_16(bytes)), 7);
  const __m256i mask = _mm256_set1_epi16(static_cast<short>(0xBF80));
  return _mm512_cvtph_ps(_mm256_and_si256(wide, mask));
}

// Scales or biases of group g.
__m512 load_scales(DType dtype, const std::byte* plane, std::int64_t g) noexcept {
  if (dtype == DType::U8) return load_e8m0(plane + g * kTileRows);
  if (dtype == DType::F8E4M3) return load_e4m3(plane + g * kTileRows);
  if (dtype == DType::F32) return _mm512_loadu_ps(at(plane, g * 64));
  __m256i half;
  std::memcpy(&half, at(plane, g * 32), sizeof half);
  if (dtype == DType::F16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// Of group g, which has these scales.
__m512 load_biases(const WeightFormat& format, const RoundedTile& tile, std::int64_t g,
                   __m512 scales) noexcept {
  if (format.zero == AffineZero::Bias) return load_scales(format.scale_dtype, tile.biases, g);
  const __m512i zeros = format.zero == AffineZero::MidCode
                            ? _mm512_set1_epi32(1 << (format.bits - 1))
                            : _mm512_cvtepu8_epi32(load_16(tile.biases + g * kTileRows));
  return _mm512_mul_ps(scales, _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_setzero_si512(), zeros)));
}

float* row_of_y(const RoundedMatmul& op, std::int64_t i, std::int64_t row) noexcept {
  const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i] : i;
  return op.y + target * op.y_stride + row - op.row;
}

// acc of 16 rows, one group further.
__m512 add_group(const RoundedLayout& layout, __m512 acc, __m512i sums, __m512 scales,
                 __m512 biases, const std::byte* x, std::int64_t g) noexcept {
  const float x_scale = static_cast<const float*>(at(x, layout.scales_at))[g];
  const float x_sum = static_cast<const float*>(at(x, layout.sums_at))[g];
  acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(scales, _mm512_set1_ps(x_scale)),
                        acc);
  return _mm512_fmadd_ps(biases, _mm512_set1_ps(x_sum), acc);
}

}  // namespace
}  // namespace moeflux::cpu
