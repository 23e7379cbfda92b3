// Compiled for AVX2; reached only through the table. Includes nothing that could be instantiated
// here and linked into code for other processors.
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

// Lanes 0..7 and 8..15 of the 16 partial sums.
struct Sums {
  __m256 low, high;
};

// The tail goes to lanes 0, 1, ...; then the tree of the scalar reference: 16, 8, 4, 2, 1.
float finish(Sums s, const float* a, const float* b, std::int64_t n_tail) noexcept {
  if (n_tail > 0) {
    alignas(32) float lanes[16];
    _mm256_store_ps(lanes, s.low);
    _mm256_store_ps(lanes + 8, s.high);
    for (std::int64_t i = 0; i < n_tail; ++i) lanes[i] += a[i] * b[i];
    s.low = _mm256_load_ps(lanes);
    s.high = _mm256_load_ps(lanes + 8);
  }
  const __m256 eight = _mm256_add_ps(s.low, s.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

void accumulate(Sums& s, __m256 a_low, __m256 a_high, const float* b) noexcept {
  s.low = _mm256_add_ps(s.low, _mm256_mul_ps(a_low, _mm256_loadu_ps(b)));
  s.high = _mm256_add_ps(s.high, _mm256_mul_ps(a_high, _mm256_loadu_ps(b + 8)));
}

float dot(const float* a, const float* b, std::int64_t n) noexcept {
  Sums s{_mm256_setzero_ps(), _mm256_setzero_ps()};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    accumulate(s, _mm256_loadu_ps(a + i), _mm256_loadu_ps(a + i + 8), b + i);
  return finish(s, a + i, b + i, n - i);
}

void axpy(float scale, const float* x, float* y, std::int64_t n) noexcept {
  const __m256 s = _mm256_set1_ps(scale);
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(
        y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_mul_ps(s, _mm256_loadu_ps(x + i))));
  }
  for (; i < n; ++i) y[i] += scale * x[i];
}

}  // namespace

const KernelTable& avx2_kernels() {
  static const KernelTable kTable{.name = "avx2",
                                  .decode_row = decode_row_avx2,
                                  .dot = dot,
                                  .row_dots = row_dots<Floats8>,
                                  .axpy = axpy,
                                  .matvec = matvec_avx2,
                                  .delta_step = delta_step<Floats8>,
                                  .sigmoid_row = sigmoid_row<Floats8>,
                                  .silu_row = silu_row<Floats8>,
                                  .conv_row = conv_row<Floats8>,
                                  .attention = &attention_kernels<Floats8>(),
                                  .rounded = &rounded_avx2()};
  return kTable;
}

}  // namespace moeflux::cpu

#endif
