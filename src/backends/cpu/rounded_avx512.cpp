// The fast path for AVX-512 without VNNI, and the rounding for both.
#if defined(__x86_64__)

#include "backends/cpu/rounded_avx512.h"

#include "backends/cpu/rounded_blocks_avx512.h"

namespace moeflux::cpu {
namespace {

void* at(std::byte* base, std::int64_t offset) noexcept {
  return base + offset;
}

// How the digits of 16 elements are dealt, see RoundedLayout::place().
__m128i dealt(__m128i digits, int steps) noexcept {
  if (steps == 1) return digits;
  return _mm_shuffle_epi8(
      digits, steps == 2 ? _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
                         : _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}

// A group. Gives its scale; the sum of its codes goes to `sum`.
float quantize_group(const RoundedLayout& layout, const float* x, std::byte* high, std::byte* low,
                     std::int32_t& sum) noexcept {
  const __m512 magnitude = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FFFFFFF));
  const __m512 infinity = _mm512_castsi512_ps(_mm512_set1_epi32(0x7F800000));
  __m512 largest = _mm512_setzero_ps();
  __mmask16 bad = 0;
  for (int k = 0; k < layout.group; k += 16) {
    const __m512 size = _mm512_and_ps(_mm512_loadu_ps(x + k), magnitude);
    bad |= _mm512_cmp_ps_mask(size, infinity, _CMP_NLT_UQ);
    largest = _mm512_max_ps(largest, size);
  }
  sum = 0;
  if (bad != 0) {
    std::memset(high, 0, static_cast<std::size_t>(layout.group));
    if (layout.digits == 2) std::memset(low, 0, static_cast<std::size_t>(layout.group));
    return __builtin_nanf("");
  }
  const float top = _mm512_reduce_max_ps(largest);
  const float limit = layout.largest_code();
  const __m512 inverse = _mm512_set1_ps(top > 0 ? limit / top : 0.0f);
  const __m512 most = _mm512_set1_ps(limit), least = _mm512_set1_ps(-limit);
  __m512i sums = _mm512_setzero_si512();
  for (int k = 0; k < layout.group; k += 16) {
    const __m512 values = _mm512_loadu_ps(x + k);
    // An infinite inverse, of a very small largest value, must not turn zeros into NaN.
    const __mmask16 some = _mm512_cmp_ps_mask(values, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __m512 scaled = _mm512_maskz_mul_ps(some, values, inverse);
    const __m512i codes = _mm512_cvtps_epi32(_mm512_max_ps(_mm512_min_ps(scaled, most), least));
    sums = _mm512_add_epi32(sums, codes);
    const __m512i upper = _mm512_srai_epi32(_mm512_add_epi32(codes, _mm512_set1_epi32(128)), 8);
    const __m128i digits = dealt(_mm512_cvtepi32_epi8(codes), layout.steps);
    if (layout.digits == 2) {
      _mm_store_si128(static_cast<__m128i*>(at(high, k)),
                      dealt(_mm512_cvtepi32_epi8(upper), layout.steps));
      _mm_store_si128(static_cast<__m128i*>(at(low, k)), digits);
    } else {
      _mm_store_si128(static_cast<__m128i*>(at(high, k)), digits);
    }
  }
  sum = _mm512_reduce_add_epi32(sums);
  return top / limit;
}

struct WideDot {
  // Adds sums of 4 products, with the dword at `four`, to each lane. Products of codes of up to 6
  // bits fit into 16 bits two at a time; those of 8 bits are taken from even and odd bytes apart.
  template <bool Wide>
  static __m512i add(__m512i acc, __m512i w, const std::byte* four) noexcept {
    int dword;
    std::memcpy(&dword, four, sizeof dword);
    const __m512i x = _mm512_set1_epi32(dword);
    if constexpr (Wide) {
      const __m512i low = _mm512_set1_epi16(0xFF);
      const __m512i even = _mm512_madd_epi16(_mm512_and_si512(w, low),
                                             _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8));
      const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(w, 8), _mm512_srai_epi16(x, 8));
      return _mm512_add_epi32(acc, _mm512_add_epi32(even, odd));
    } else {
      const __m512i pairs = _mm512_maddubs_epi16(w, x);
      return _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
    }
  }
  // With the dword at At of one of four rows.
  template <bool Wide, int Row, int At>
  static __m512i add_at(__m512i acc, __m512i w, const FourRows& rows) noexcept {
    return add<Wide>(acc, w, rows.x + Row * rows.stride + At);
  }
  template <int Row>
  static __m512i start_at(const FourRows& rows) noexcept {
    int dword;
    std::memcpy(&dword, rows.x + Row * rows.stride, sizeof dword);
    return _mm512_set1_epi32(dword);
  }
  using PermutedFp4Unit = Fp4Unit;
  static bool has_permute() noexcept { return false; }
  static constexpr bool kTellsWide = true;
};

void matmul(const RoundedMatmul& op) noexcept {
  if (op.weight->format.kind == WeightKind::Block) return block_products<WideDot>(op);
  op.n <= kFew ? few_rows<WideDot>(op) : many_rows<WideDot>(op);
}

}  // namespace

void rounded_quantize_avx512(const RoundedLayout& layout, const float* x, std::byte* out) noexcept {
  auto* scales = static_cast<float*>(at(out, layout.scales_at));
  auto* sums = static_cast<float*>(at(out, layout.sums_at));
  const auto padding = static_cast<std::size_t>(layout.padded - layout.cols);
  for (int digit = 0; digit < layout.digits; ++digit) {
    std::memset(out + digit * layout.padded + layout.cols, 0, padding);
  }
  std::memset(scales, 0, static_cast<std::size_t>(layout.row_bytes - layout.scales_at));
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    float buffer[RoundedLayout::kMaxGroup];
    const float* values = rounded_values(layout, x, g, buffer);
    std::byte* high = out + g * layout.group;
    std::int32_t sum = 0;
    scales[g] = quantize_group(layout, values, high, high + layout.low_at, sum);
    if (layout.sums == RoundedSums::Scaled) sums[g] = scales[g] * static_cast<float>(sum);
  }
  rounded_sums(layout, out);
}

const RoundedKernels& rounded_avx512() {
  static constexpr RoundedKernels kKernels{.quantize = rounded_quantize_avx512, .matmul = matmul};
  return kKernels;
}

}  // namespace moeflux::cpu

#endif
