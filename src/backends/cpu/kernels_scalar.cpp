#include <array>

#include "backends/cpu/attention_kernels.h"
#include "backends/cpu/delta_step.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/row_dots.h"
#include "backends/cpu/rows.h"
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

void dots_one_by_one(const RowDots& op) noexcept {
  for (std::int64_t i = 0; i < op.n_x; ++i) {
    for (std::int64_t r = 0; r < op.n_a; ++r) {
      op.y[i * op.y_stride + r] = dot(op.a + r * op.a_stride, op.x + i * op.x_stride, op.n);
    }
  }
}

void axpy(float scale, const float* x, float* y, std::int64_t n) noexcept {
  for (std::int64_t i = 0; i < n; ++i) y[i] += scale * x[i];
}

void matvec(const Matvec& op) noexcept {
  matvec_by_rows(scalar_kernels(), op);
}

}  // namespace

const KernelTable& scalar_kernels() {
  static const KernelTable kTable{.name = "scalar",
                                  .decode_row = decode_row,
                                  .dot = dot,
                                  .row_dots = dots_one_by_one,
                                  .axpy = axpy,
                                  .matvec = matvec,
                                  .delta_step = delta_step<Floats4>,
                                  .sigmoid_row = sigmoid_row<Floats4>,
                                  .silu_row = silu_row<Floats4>,
                                  .conv_row = conv_row<Floats4>,
                                  .attention = &attention_kernels<Floats4>(),
                                  .rounded = &rounded_scalar()};
  return kTable;
}

}  // namespace moeflux::cpu
