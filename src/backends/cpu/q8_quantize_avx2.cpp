// The rounding of activations for AVX2; reached only through the table. Includes nothing that could
// be instantiated here and linked into code for other processors.
#if defined(__x86_64__)

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/q8.h"

namespace moeflux::cpu {

void q8_quantize_avx2(const Q8Layout& layout, const float* x, std::byte* out) noexcept;

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

void store_half(std::byte* to, __m128i value) noexcept {
  _mm_storeu_si128(static_cast<__m128i*>(static_cast<void*>(to)), value);
}
void store_quarter(std::byte* to, std::int64_t value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

// Digits of elements [i, i + 32), to their places.
void place_digits(const Q8Layout& layout, std::int64_t i, __m256i digits, std::byte* out) noexcept {
  constexpr int kBlock = Q8Layout::kBlockBytes;
  std::byte* to = out + layout.place(i);
  if (layout.steps == 1) {
    _mm256_storeu_si256(static_cast<__m256i*>(static_cast<void*>(to)), digits);
  } else if (layout.steps == 2) {
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    const __m256i dealt =
        _mm256_permute4x64_epi64(_mm256_shuffle_epi8(digits, order), 0b11'01'10'00);
    store_half(to, _mm256_castsi256_si128(dealt));
    store_half(to + kBlock, _mm256_extracti128_si256(dealt, 1));
  } else {
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m256i dealt = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(digits, order),
                                                      _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    store_quarter(to, _mm256_extract_epi64(dealt, 0));
    store_quarter(to + kBlock, _mm256_extract_epi64(dealt, 1));
    store_quarter(to + 2 * kBlock, _mm256_extract_epi64(dealt, 2));
    store_quarter(to + 3 * kBlock, _mm256_extract_epi64(dealt, 3));
  }
}

std::int32_t sum_lanes(__m256i v) noexcept {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

// Codes of elements [i, i + group) to their places; their sum.
std::int32_t place_group(const Q8Layout& layout, std::int64_t i, const float* x, float inverse,
                         std::byte* out) noexcept {
  const float limit = layout.largest_code();
  __m256i sum = _mm256_setzero_si256();
  for (int k = 0; k < layout.group; k += kAtOnce) {
    __m256i codes[4], rest[4];
    for (int j = 0; j < 4; ++j) {
      codes[j] = to_codes(x + i + k + 8 * j, inverse, limit);
      sum = _mm256_add_epi32(sum, codes[j]);
    }
    if (layout.digits == 2) {
      for (int j = 0; j < 4; ++j) {
        const __m256i high =
            _mm256_srai_epi32(_mm256_add_epi32(codes[j], _mm256_set1_epi32(128)), 8);
        rest[j] = _mm256_sub_epi32(codes[j], _mm256_slli_epi32(high, 8));
        codes[j] = high;
      }
      place_digits(layout, i + k, to_bytes(rest), out + layout.low_at);
    }
    place_digits(layout, i + k, to_bytes(codes), out);
  }
  return sum_lanes(sum);
}

void clear_group(const Q8Layout& layout, std::int64_t i, std::byte* out) noexcept {
  for (int k = 0; k < layout.group; k += kAtOnce) {
    place_digits(layout, i + k, _mm256_setzero_si256(), out);
    if (layout.digits == 2) {
      place_digits(layout, i + k, _mm256_setzero_si256(), out + layout.low_at);
    }
  }
}

// All that no group writes.
void clear_padding(const Q8Layout& layout, std::byte* out) noexcept {
  const auto block = static_cast<std::size_t>(layout.block_codes());
  if (layout.cols < layout.padded) {
    std::byte* last = out + layout.padded - layout.block_codes();
    std::memset(last, 0, block);
    std::memset(last + layout.low_at, 0, block);
  }
  const std::int64_t used = layout.n_groups * std::int64_t{sizeof(float)};
  const auto left = static_cast<std::size_t>(layout.sums_at - layout.scales_at - used);
  std::memset(out + layout.scales_at + used, 0, left);
  std::memset(out + layout.sums_at + used, 0, left);
}

}  // namespace

void q8_quantize_avx2(const Q8Layout& layout, const float* x, std::byte* out) noexcept {
  clear_padding(layout, out);
  const float limit = layout.largest_code();
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    const std::int64_t i = g * layout.group;
    const float largest = largest_of(x + i, layout.group);
    const float scale = largest / limit;
    std::int32_t sum = 0;
    if (largest > 0) {
      sum = place_group(layout, i, x, limit / largest, out);
    } else {  // zeros, or what is not finite
      clear_group(layout, i, out);
    }
    floats_at(out, layout.scales_at)[g] = scale;
    floats_at(out, layout.sums_at)[g] = scale * static_cast<float>(sum);
  }
}

}  // namespace moeflux::cpu

#endif
