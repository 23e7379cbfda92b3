// Compiled for AVX-512 (F, BW, DQ, VL); reached only through the table. Includes nothing that could
// be instantiated here and linked into code for other processors.
#if defined(__x86_64__)

#include <cstdint>

#include <immintrin.h>

#include "backends/cpu/attention_kernels.h"
#include "backends/cpu/delta_step.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/row_dots.h"
#include "backends/cpu/rows.h"

namespace moeflux::cpu {
namespace {

__mmask16 first_lanes(std::int64_t n) noexcept {
  return static_cast<__mmask16>((1u << n) - 1);
}

__m512 accumulate(__m512 sum, __m512 a, __m512 b) noexcept {
  return _mm512_add_ps(sum, _mm512_mul_ps(a, b));
}

// The tree of the scalar reference: 16, 8, 4, 2, 1 lanes.
float finish(__m512 sum) noexcept {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Adds the tail to lanes 0, 1, ... and leaves the others untouched, as the reference does.
__m512 add_tail(__m512 sum, const float* a, const float* b, std::int64_t n) noexcept {
  if (n == 0) return sum;
  const __mmask16 lanes = first_lanes(n);
  const __m512 product =
      _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, a), _mm512_maskz_loadu_ps(lanes, b));
  return _mm512_mask_add_ps(sum, lanes, sum, product);
}

float dot(const float* a, const float* b, std::int64_t n) noexcept {
  __m512 sum = _mm512_setzero_ps();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    sum = accumulate(sum, _mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i));
  return finish(add_tail(sum, a + i, b + i, n - i));
}

void axpy(float scale, const float* x, float* y, std::int64_t n) noexcept {
  const __m512 s = _mm512_set1_ps(scale);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm512_storeu_ps(y + i, accumulate(_mm512_loadu_ps(y + i), s, _mm512_loadu_ps(x + i)));
  }
  if (i < n) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 sum =
        accumulate(_mm512_maskz_loadu_ps(lanes, y + i), s, _mm512_maskz_loadu_ps(lanes, x + i));
    _mm512_mask_storeu_ps(y + i, lanes, sum);
  }
}

}  // namespace

const KernelTable& avx512_kernels() {
  static const KernelTable kTable{.name = "avx512",
                                  .decode_row = decode_row_avx512,
                                  .dot = dot,
                                  .row_dots = row_dots<Floats16>,
                                  .axpy = axpy,
                                  .matvec = matvec_avx512,
                                  .delta_step = delta_step<Floats16>,
                                  .sigmoid_row = sigmoid_row<Floats16>,
                                  .silu_row = silu_row<Floats16>,
                                  .conv_row = conv_row<Floats16>,
                                  .attention = &attention_kernels<Floats16>(),
                                  .rounded = &rounded_avx512()};
  return kTable;
}

}  // namespace moeflux::cpu

#endif
