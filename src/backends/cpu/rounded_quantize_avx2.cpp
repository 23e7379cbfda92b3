// The rounding of activations for AVX2; reached only through the table. Includes nothing that could
// be instantiated here and linked into code for other processors.
#if defined(__x86_64__)

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/rounded.h"

namespace moeflux::cpu {

void rounded_quantize_avx2(const RoundedLayout& layout, const float* x, std::byte* out) noexcept;

namespace {

constexpr int kAtOnce = 32;  // codes

float* floats_at(std::byte* base, std::int64_t offset) noexcept {
  return static_cast<float*>(static_cast<void*>(base + offset));
}

// The largest magnitude; NaN if a value is not finite.
float largest_of(const float* x, int group) noexcept {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  const __m256 infinity = _mm256_castsi256_ps(_mm256_set1_epi32(0x7F800000));
  __m256 largest = _mm256_setzero_ps(), bad = _mm256_setzero_ps();
  for (int k = 0; k < group; k += 8) {
    const __m256 size = _mm256_and_ps(_mm256_loadu_ps(x + k), magnitude);
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(size, infinity, _CMP_NLT_UQ));
    largest = _mm256_max_ps(largest, size);
  }
  if (_mm256_movemask_ps(bad) != 0) return __builtin_nanf("");
  const __m128 four =
      _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

__m256i to_codes(const float* x, float inverse, float limit) noexcept {
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(inverse));
  const __m256 cut =
      _mm256_max_ps(_mm256_min_ps(scaled, _mm256_set1_ps(limit)), _mm256_set1_ps(-limit));
  // Zero times an inverse that overflowed is a zero.
  return _mm256_cvtps_epi32(_mm256_and_ps(cut, _mm256_cmp_ps(scaled, scaled, _CMP_ORD_Q)));
}

// Values that fit, as bytes in their order.
__m256i to_bytes(const __m256i (&v)[4]) noexcept {
  // Packing works within halves of 128 bits; the permutation puts the words back in order.
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// How 32 digits are dealt, see RoundedLayout::place().
__m256i dealt(__m256i digits, int steps) noexcept {
  if (steps == 1) return digits;
  const __m128i order = steps == 2
                            ? _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
                            : _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm256_shuffle_epi8(digits, _mm256_broadcastsi128_si256(order));
}

void store(std::byte* to, __m256i digits) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to)), digits);
}

std::int32_t sum_lanes(__m256i v) noexcept {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

// The digits of a group; gives the sum of its codes.
std::int32_t place_group(const RoundedLayout& layout, const float* x, float inverse,
                         std::byte* out) noexcept {
  const float limit = layout.largest_code();
  __m256i sum = _mm256_setzero_si256();
  for (int k = 0; k < layout.group; k += kAtOnce) {
    __m256i codes[4], rest[4];
    for (int j = 0; j < 4; ++j) {
      codes[j] = to_codes(x + k + 8 * j, inverse, limit);
      sum = _mm256_add_epi32(sum, codes[j]);
    }
    if (layout.digits == 2) {
      for (int j = 0; j < 4; ++j) {
        const __m256i high =
            _mm256_srai_epi32(_mm256_add_epi32(codes[j], _mm256_set1_epi32(128)), 8);
        rest[j] = _mm256_sub_epi32(codes[j], _mm256_slli_epi32(high, 8));
        codes[j] = high;
      }
      store(out + layout.low_at + k, dealt(to_bytes(rest), layout.steps));
    }
    store(out + k, dealt(to_bytes(codes), layout.steps));
  }
  return sum_lanes(sum);
}

}  // namespace

void rounded_quantize_avx2(const RoundedLayout& layout, const float* x, std::byte* out) noexcept {
  const auto group_bytes = static_cast<std::size_t>(layout.group);
  const auto padding = static_cast<std::size_t>(layout.padded - layout.cols);
  const float limit = layout.largest_code();
  for (int digit = 0; digit < layout.digits; ++digit) {
    std::memset(out + digit * layout.low_at + layout.cols, 0, padding);
  }
  std::memset(out + layout.scales_at, 0,
              static_cast<std::size_t>(layout.row_bytes - layout.scales_at));
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    float buffer[RoundedLayout::kMaxGroup];
    const float* values = rounded_values(layout, x, g, buffer);
    std::byte* digits = out + g * layout.group;
    const float largest = largest_of(values, layout.group);
    const float scale = largest / limit;
    std::int32_t sum = 0;
    if (largest > 0) {
      sum = place_group(layout, values, limit / largest, digits);
    } else {  // zeros, or what is not finite
      std::memset(digits, 0, group_bytes);
      std::memset(digits + layout.low_at, 0, group_bytes);
    }
    floats_at(out, layout.scales_at)[g] = scale;
    if (layout.sums == RoundedSums::Scaled) {
      floats_at(out, layout.sums_at)[g] = scale * static_cast<float>(sum);
    }
  }
  rounded_sums(layout, out);
}

}  // namespace moeflux::cpu

#endif
