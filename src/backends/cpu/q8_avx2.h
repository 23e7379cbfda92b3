// What the kernels of the fast path for AVX2 share. Included only by their files; everything here
// has internal linkage, and nothing is included that could be instantiated here and linked into
// code for other processors.
//
// Eight rows of weights are a panel. Its scales and biases are turned, so that the lanes of a
// register are its rows; for Tiles, so are the codes.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/q8.h"
#include "backends/cpu/with_format.h"

namespace moeflux::cpu {
namespace {

constexpr int kRows = 8;   // of a panel
constexpr int kUnit = 32;  // bytes of a register

// A panel is a short stream that the processor does not foresee.
constexpr std::int64_t kAhead = 16 << 10;

struct Panel {
  const std::byte* data[kRows];
  const float* scales;     // [group][row]
  const float* biases;     // the same
  const std::byte* codes;  // Tiles: [code / 4][row][code % 4]
};

// Products of a panel with some rows of activations, as [row of activations][row of weights].
using Kernel = void (*)(const Q8Layout& layout, const Panel& panel, const std::byte* x,
                        float (*y)[kRows]) noexcept;

__m256i load(const void* from) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
__m256i load_halves(const void* low, const void* high) noexcept {
  return _mm256_loadu2_m128i(static_cast<const __m128i*>(high), static_cast<const __m128i*>(low));
}
void store(void* to, __m256i value) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}
const float* floats_at(const std::byte* base, std::int64_t offset) noexcept {
  return static_cast<const float*>(static_cast<const void*>(base + offset));
}
void prefetch(const std::byte* from, int bytes) noexcept {
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(from + i, _MM_HINT_T1);
}

// Dwords, 4 by 4 within each half.
void transpose_halves(__m256i& a, __m256i& b, __m256i& c, __m256i& d) noexcept {
  const __m256i ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
  const __m256i cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
  a = _mm256_unpacklo_epi64(ab_low, cd_low);
  b = _mm256_unpackhi_epi64(ab_low, cd_low);
  c = _mm256_unpacklo_epi64(ab_high, cd_high);
  d = _mm256_unpackhi_epi64(ab_high, cd_high);
}

// ---- scales and biases

// 4 of each of two rows.
template <DType Type>
__m256i two_rows(const std::byte* a, const std::byte* b) noexcept {
  if constexpr (Type == DType::F32) {
    return load_halves(a, b);
  } else {
    std::int64_t a_bits = 0, b_bits = 0;
    std::memcpy(&a_bits, a, sizeof a_bits);
    std::memcpy(&b_bits, b, sizeof b_bits);
    const __m128i raw = _mm_set_epi64x(b_bits, a_bits);
    if constexpr (Type == DType::F16) return _mm256_castps_si256(_mm256_cvtph_ps(raw));
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16);
  }
}

// Those of a panel whose rows begin at `rows`, as [group][row]. Writes whole groups of 4.
template <DType Type>
void turn_plane(const std::byte* const (&rows)[kRows], std::int64_t n_groups, float* out) noexcept {
  constexpr std::int64_t kSize = Type == DType::F32 ? 4 : 2;
  std::byte copies[kRows][4 * kSize];
  for (std::int64_t g = 0; g < n_groups; g += 4) {
    const std::byte* from[kRows];
    const std::int64_t left = n_groups - g;
    for (int r = 0; r < kRows; ++r) {
      from[r] = rows[r] + g * kSize;
      if (left >= 4) continue;
      std::memset(copies[r], 0, sizeof copies[r]);
      std::memcpy(copies[r], from[r], static_cast<std::size_t>(left * kSize));
      from[r] = copies[r];
    }
    __m256i v[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) v[r] = two_rows<Type>(from[r], from[r + 4]);
    transpose_halves(v[0], v[1], v[2], v[3]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store(out + (g + i) * kRows, v[i]);
  }
}

void turn_plane(DType dtype, const std::byte* const (&rows)[kRows], std::int64_t n_groups,
                float* out) noexcept {
  dtype == DType::F32   ? turn_plane<DType::F32>(rows, n_groups, out)
  : dtype == DType::F16 ? turn_plane<DType::F16>(rows, n_groups, out)
                        : turn_plane<DType::BF16>(rows, n_groups, out);
}

// ---- codes

// 32 codes as 16-bit values: those at even and at odd places.
struct WideCodes {
  __m256i even, odd;
};

// How codes of less than 8 bits get there. Half a register begins with the first of the 32 codes,
// or ends with the last. A shuffle takes the two bytes in which a code begins to its lane, a
// product with a power of two moves it to the top, and what was above it out.
template <int Bits>
struct SpreadTables {
  static constexpr int kLoad = 4 * Bits < 16 ? 8 : 16;  // bytes of a half
  alignas(kUnit) std::uint8_t bytes[2][kUnit];          // for codes at even, at odd places
  alignas(kUnit) std::uint16_t factors[2][kUnit / 2];

  constexpr SpreadTables() : bytes(), factors() {
    for (int i = 0; i < kUnit; ++i) {
      const int bit = (i < 16 ? 0 : 8 * kLoad - 16 * Bits) + i % 16 * Bits;
      const int to = i / 2;  // lane
      bytes[i % 2][2 * to] = static_cast<std::uint8_t>(bit / 8);
      bytes[i % 2][2 * to + 1] = static_cast<std::uint8_t>((bit / 8 + 1) % 16);
      factors[i % 2][to] = static_cast<std::uint16_t>(1 << (16 - Bits - bit % 8));
    }
  }
};

// 32 codes of a row. Reads no byte beyond theirs.
template <int Bits>
WideCodes wide_codes(const std::byte* from) noexcept {
  if constexpr (Bits == 8) {
    const __m256i codes = load(from);
    return {_mm256_and_si256(codes, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16(codes, 8)};
  } else {
    static constexpr SpreadTables<Bits> kTables;
    __m128i first = _mm_setzero_si128(), last = _mm_setzero_si128();
    std::memcpy(&first, from, kTables.kLoad);
    std::memcpy(&last, from + 4 * Bits - kTables.kLoad, kTables.kLoad);
    const __m256i packed = _mm256_set_m128i(last, first);
    const auto spread = [&](int odd) __attribute__((always_inline)) {
      const __m256i two = _mm256_shuffle_epi8(packed, load(kTables.bytes[odd]));
      return _mm256_srli_epi16(_mm256_mullo_epi16(two, load(kTables.factors[odd])), 16 - Bits);
    };
    return {spread(0), spread(1)};
  }
}

// 32 codes of each row, one per byte and interleaved.
template <int Bits>
void pack_some(const std::byte* const (&rows)[kRows], std::int64_t at, std::byte* out) noexcept {
  __m256i v[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const WideCodes codes = wide_codes<Bits>(rows[r] + at);
    v[r] = _mm256_or_si256(codes.even, _mm256_slli_epi16(codes.odd, 8));
  }
  transpose_halves(v[0], v[1], v[2], v[3]);
  transpose_halves(v[4], v[5], v[6], v[7]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    store(out + i * kUnit, _mm256_permute2x128_si256(v[i], v[i + 4], 0x20));
    store(out + (i + 4) * kUnit, _mm256_permute2x128_si256(v[i], v[i + 4], 0x31));
  }
}

template <>
void pack_some<4>(const std::byte* const (&rows)[kRows], std::int64_t at, std::byte* out) noexcept {
  const __m256i mask = _mm256_set1_epi8(15);
  __m256i v[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    const __m256i packed = load_halves(rows[r] + at, rows[r + 4] + at);
    const __m256i even = _mm256_and_si256(packed, mask);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(packed, 4), mask);
    v[r] = _mm256_unpacklo_epi8(even, odd);
    v[r + 4] = _mm256_unpackhi_epi8(even, odd);
  }
  transpose_halves(v[0], v[1], v[2], v[3]);
  transpose_halves(v[4], v[5], v[6], v[7]);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) store(out + i * kUnit, v[i]);
}

template <int Bits>
void pack(const Panel& panel, std::int64_t cols, std::byte* out) noexcept {
  for (std::int64_t c = 0; c < cols; c += 32) {
    prefetch(panel.data[0] + c * Bits + kAhead, kRows * 4 * Bits);
    pack_some<Bits>(panel.data, c * Bits / 8, out + c * kRows);
  }
}

void pack(int bits, const Panel& panel, std::int64_t cols, std::byte* out) noexcept {
  with_bits(bits, [&]<int Bits>() { pack<Bits>(panel, cols, out); });
}

// ---- activations

// 32 codes of activations.
template <int Digits>
WideCodes wide_activations(const Q8Layout& layout, const std::byte* x) noexcept {
  const __m256i high = load(x);
  if constexpr (Digits == 1) {
    return {_mm256_srai_epi16(_mm256_slli_epi16(high, 8), 8), _mm256_srai_epi16(high, 8)};
  }
  const __m256i low = load(x + layout.low_at);
  const __m256i low_even = _mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8);
  const __m256i high_odd = _mm256_and_si256(high, _mm256_set1_epi16(-256));
  return {_mm256_add_epi16(_mm256_slli_epi16(high, 8), low_even),
          _mm256_add_epi16(high_odd, _mm256_srai_epi16(low, 8))};
}

// The end of a group: `sum` of its products of codes, in the order of the reference.
__m256 add_group(const Q8Layout& layout, const Panel& panel, const std::byte* x, std::int64_t g,
                 __m256i sum, __m256 acc) noexcept {
  const __m256 scale = _mm256_mul_ps(_mm256_load_ps(panel.scales + g * kRows),
                                     _mm256_set1_ps(floats_at(x, layout.scales_at)[g]));
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, acc);
  return _mm256_fmadd_ps(_mm256_load_ps(panel.biases + g * kRows),
                         _mm256_set1_ps(floats_at(x, layout.sums_at)[g]), acc);
}

}  // namespace
}  // namespace moeflux::cpu
