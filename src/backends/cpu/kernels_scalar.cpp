#include <array>

#include "backends/cpu/attention_kernels.h"
#include "backends/cpu/delta_step.h"
#include "backends/cpu/kernels.h"
#include "quant/codec.h"

namespace moeflux::cpu {
namespace {

constexpr int kLanes = 16;

float dot(const float* a, const float* b, std::int64_t n) noexcept {
  std::array<float, kLanes> sum{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sum[lane] += a[i + lane] * b[i + lane];
  }
  for (int lane = 0; i < n; ++i, ++lane) sum[lane] += a[i] * b[i];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sum[lane] += sum[lane + width];
  }
  return sum[0];
}

void dot_rows(const float* a, const float* x, std::int64_t x_stride, std::int64_t n_rows,
              std::int64_t n, float* y, std::int64_t y_stride) noexcept {
  for (std::int64_t i = 0; i < n_rows; ++i) y[i * y_stride] = dot(a, x + i * x_stride, n);
}

void axpy(float scale, const float* x, float* y, std::int64_t n) noexcept {
  for (std::int64_t i = 0; i < n; ++i) y[i] += scale * x[i];
}

void matvec(const WeightView& m, std::int64_t row, std::int64_t n_rows, const float* x, float* y,
            float* scratch) noexcept {
  for (std::int64_t r = 0; r < n_rows; ++r) {
    decode_row(m, row + r, scratch);
    y[r] = dot(scratch, x, m.cols);
  }
}

}  // namespace

const KernelTable& scalar_kernels() {
  static const KernelTable kTable{.name = "scalar",
                                  .decode_row = decode_row,
                                  .dot = dot,
                                  .dot_rows = dot_rows,
                                  .axpy = axpy,
                                  .matvec = matvec,
                                  .delta_step = delta_step<Floats4>,
                                  .sigmoid_row = sigmoid_row<Floats4>,
                                  .silu_row = silu_row<Floats4>,
                                  .attention = &attention_kernels<Floats4>(),
                                  .q8 = &q8_scalar()};
  return kTable;
}

}  // namespace moeflux::cpu
