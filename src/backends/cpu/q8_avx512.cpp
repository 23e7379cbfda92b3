// The fast path for AVX-512 without VNNI, and the rounding for both.
#if defined(__x86_64__)

#include "backends/cpu/q8_avx512.h"

namespace moeflux::cpu {
namespace {

// 16 values as codes.
__m128i to_codes(__m512 x, __m512 inverse) noexcept {
  const __m512 limit = _mm512_set1_ps(127.0f);
  const __m512 scaled = _mm512_mul_ps(x, inverse);
  const __m512 cut =
      _mm512_max_ps(_mm512_min_ps(scaled, limit), _mm512_sub_ps(_mm512_setzero_ps(), limit));
  return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(cut));
}

// A group in element order. Gives its scale; the sum of its codes goes to `sum`.
float quantize_group(const float* x, int group, std::byte* codes, std::int32_t& sum) noexcept {
  const __m512 magnitude = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FFFFFFF));
  const __m512 infinity = _mm512_castsi512_ps(_mm512_set1_epi32(0x7F800000));
  __m512 largest = _mm512_setzero_ps();
  __mmask16 bad = 0;
  for (int k = 0; k < group; k += 16) {
    const __m512 size = _mm512_and_ps(_mm512_loadu_ps(x + k), magnitude);
    bad |= _mm512_cmp_ps_mask(size, infinity, _CMP_NLT_UQ);
    largest = _mm512_max_ps(largest, size);
  }
  sum = 0;
  if (bad != 0) {
    std::memset(codes, 0, static_cast<std::size_t>(group));
    return __builtin_nanf("");
  }
  const float top = _mm512_reduce_max_ps(largest);
  const __m512 inverse = _mm512_set1_ps(top > 0 ? 127.0f / top : 0.0f);
  __m512i sums = _mm512_setzero_si512();
  for (int k = 0; k < group; k += 16) {
    const __m128i some = to_codes(_mm512_loadu_ps(x + k), inverse);
    _mm_store_si128(static_cast<__m128i*>(at(codes, k)), some);
    sums = _mm512_add_epi32(sums, _mm512_cvtepi8_epi32(some));
  }
  sum = _mm512_reduce_add_epi32(sums);
  return top / 127.0f;
}

// The codes of a block from element order to [step][byte], in place.
void deal_block(std::byte* block, int steps) noexcept {
  __m512i v[4];
  for (int i = 0; i < steps; ++i) v[i] = _mm512_load_si512(at(block, i * kBlock));
  for (int i = 0; i < steps; ++i) {
    for (int step = 0; step < steps; ++step) {
      if (steps == 2) {
        const __m512i moved = _mm512_srli_epi16(v[i], static_cast<unsigned>(8 * step));
        _mm256_store_si256(static_cast<__m256i*>(at(block, step * kBlock + i * 32)),
                           _mm512_cvtepi16_epi8(moved));
      } else {
        const __m512i moved = _mm512_srli_epi32(v[i], static_cast<unsigned>(8 * step));
        _mm_store_si128(static_cast<__m128i*>(at(block, step * kBlock + i * 16)),
                        _mm512_cvtepi32_epi8(moved));
      }
    }
  }
}

}  // namespace

namespace {

// x less what its codes, in element order, stand for.
void leave_rest(const float* x, int group, const std::byte* codes, float scale,
                float* rest) noexcept {
  for (int k = 0; k < group; k += 16) {
    const __m128i some = _mm_load_si128(static_cast<const __m128i*>(at(codes, k)));
    const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(some));
    _mm512_store_ps(rest + k,
                    _mm512_fnmadd_ps(values, _mm512_set1_ps(scale), _mm512_loadu_ps(x + k)));
  }
}

// Codes of all groups are there in element order: the rest of the row's layout.
void finish_row(const Q8Layout& layout, std::byte* out) noexcept {
  auto* scales = static_cast<float*>(at(out, layout.scales_at));
  auto* sums = static_cast<float*>(at(out, layout.sums_at));
  for (std::int64_t g = layout.n_groups; g < layout.n_chunks() * kLanes; ++g) {
    scales[g] = sums[g] = 0;
  }
  std::memset(out + layout.cols, 0, static_cast<std::size_t>(layout.scales_at - layout.cols));
  if (layout.steps == 1) return;
  for (std::int64_t b = 0; b < layout.n_blocks; ++b) {
    deal_block(out + b * layout.block_codes(), layout.steps);
  }
}

float place_group(const Q8Layout& layout, std::int64_t g, const float* x, std::byte* out) noexcept {
  std::int32_t sum = 0;
  const float scale = quantize_group(x, layout.group, out + g * layout.group, sum);
  static_cast<float*>(at(out, layout.scales_at))[g] = scale;
  static_cast<float*>(at(out, layout.sums_at))[g] = scale * static_cast<float>(sum);
  return scale;
}

}  // namespace

void q8_quantize_avx512(const Q8Layout& layout, const float* x, std::byte* out,
                        std::byte* rest) noexcept {
  alignas(64) float left[Q8Layout::kMaxGroup];
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    const float* values = x + g * layout.group;
    const float scale = place_group(layout, g, values, out);
    if (rest == nullptr) continue;
    leave_rest(values, layout.group, out + g * layout.group, scale, left);
    place_group(layout, g, left, rest);
  }
  finish_row(layout, out);
  if (rest != nullptr) finish_row(layout, rest);
}

namespace {

struct WideDot {
  // Sums of 4 codes per lane. Products of codes of 2 and 4 bits fit into 16 bits; those of 8 bits
  // are taken from even and odd bytes apart.
  template <int Steps>
  static __m512i lane_sums(const __m512i (&w)[Steps], const __m512i (&x)[Steps]) noexcept {
    if constexpr (Steps == 1) {
      const __m512i low = _mm512_set1_epi16(0xFF);
      const __m512i even = _mm512_madd_epi16(_mm512_and_si512(w[0], low),
                                             _mm512_srai_epi16(_mm512_slli_epi16(x[0], 8), 8));
      const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(w[0], 8), _mm512_srai_epi16(x[0], 8));
      return _mm512_add_epi32(even, odd);
    } else {
      __m512i pairs = _mm512_maddubs_epi16(w[0], x[0]);
      for (int i = 1; i < Steps; ++i) {
        pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16(w[i], x[i]));
      }
      return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
    }
  }
};

}  // namespace

const Q8Kernels& q8_avx512() {
  static constexpr Q8Kernels kKernels{.quantize = q8_quantize_avx512, .matmul = matmul<WideDot>};
  return kKernels;
}

}  // namespace moeflux::cpu

#endif
