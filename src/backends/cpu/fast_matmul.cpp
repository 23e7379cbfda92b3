// Products of quantized weights with activations rounded to 8 bits (q8.h).
#include <algorithm>

#include "backends/cpu/cpu_backend.h"

namespace moeflux::cpu {
namespace {

constexpr std::int64_t kRowBlock = 4;  // rows the kernels take at once

// Weight rows per task: enough work to be worth a hand-over, enough tasks to share evenly.
std::int64_t rows_per_task(const WeightView& w, std::int64_t n, int n_threads) {
  constexpr std::int64_t kCodesPerTask = 1 << 16;
  const std::int64_t by_work = kCodesPerTask / std::max<std::int64_t>(1, w.cols * n);
  const std::int64_t by_share = w.rows / (16 * n_threads);
  const std::int64_t rows = std::max({by_work, by_share, std::int64_t{1}});
  return (rows + kRowBlock - 1) / kRowBlock * kRowBlock;
}

}  // namespace

CpuBackend::Rounded CpuBackend::round_rows(const WeightView& weight, const float* x,
                                           std::int64_t x_stride, std::int64_t n,
                                           const std::int32_t* rows_in) {
  Rounded rounded{Q8Layout(weight.format, weight.cols), nullptr};
  const auto bytes = static_cast<std::size_t>(n * rounded.layout.row_bytes);
  if (rounded_.size() < bytes) rounded_ = AlignedBuffer(bytes);
  rounded.rows = rounded_.data();
  pool_.parallel_for(n, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = rows_in != nullptr ? rows_in[i] : i;
      kernels_.q8->quantize(rounded.layout, x + row * x_stride,
                            rounded_.data() + i * rounded.layout.row_bytes);
    }
  });
  return rounded;
}

void CpuBackend::fast_matmul(const MatmulOp& op) {
  const WeightView& w = op.weight;
  const Rounded x = round_rows(w, op.x, op.x_stride, op.n, nullptr);
  pool_.parallel_for(
      w.rows, rows_per_task(w, op.n, pool_.size()),
      [&](std::int64_t begin, std::int64_t end, int worker) {
        kernels_.q8->matmul({.weight = &w,
                             .layout = &x.layout,
                             .row = begin,
                             .n_rows = end - begin,
                             .x = x.rows,
                             .n = op.n,
                             .y = op.y + begin,
                             .y_stride = op.y_stride,
                             .rows_out = nullptr,
                             .scratch = scratch(worker, q8_scratch_floats(x.layout))});
      });
}

void CpuBackend::fast_ffn(const FfnOp& op) {
  const std::int64_t d_model = op.gate.cols, d_ff = op.gate.rows;
  const Rounded x =
      round_rows(op.gate, op.x, d_model, op.n, op.rows_in.empty() ? nullptr : op.rows_in.data());
  const std::int64_t grain = rows_per_task(op.gate, 2 * op.n, pool_.size());
  const std::int64_t kernel_floats = q8_scratch_floats(x.layout);
  pool_.parallel_for(d_ff, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* kernel_scratch = scratch(worker, kernel_floats + op.n * grain);
    float* up = kernel_scratch + kernel_floats;  // [n, end - begin]
    const Q8Matmul gate_rows{.weight = &op.gate,
                             .layout = &x.layout,
                             .row = begin,
                             .n_rows = end - begin,
                             .x = x.rows,
                             .n = op.n,
                             .y = op.hidden + begin,
                             .y_stride = d_ff,
                             .rows_out = nullptr,
                             .scratch = kernel_scratch};
    Q8Matmul up_rows = gate_rows;
    up_rows.weight = &op.up;
    up_rows.y = up;
    up_rows.y_stride = grain;
    kernels_.q8->matmul(gate_rows);
    kernels_.q8->matmul(up_rows);
    for (std::int64_t i = 0; i < op.n; ++i) {
      for (std::int64_t r = begin; r < end; ++r) {
        op.hidden[i * d_ff + r] = silu(op.hidden[i * d_ff + r]) * up[i * grain + r - begin];
      }
    }
  });

  const Rounded hidden = round_rows(op.down, op.hidden, d_ff, op.n, nullptr);
  pool_.parallel_for(
      d_model, rows_per_task(op.down, op.n, pool_.size()),
      [&](std::int64_t begin, std::int64_t end, int worker) {
        kernels_.q8->matmul({.weight = &op.down,
                             .layout = &hidden.layout,
                             .row = begin,
                             .n_rows = end - begin,
                             .x = hidden.rows,
                             .n = op.n,
                             .y = op.y + begin,
                             .y_stride = d_model,
                             .rows_out = op.rows_out.empty() ? nullptr : op.rows_out.data(),
                             .scratch = scratch(worker, q8_scratch_floats(hidden.layout))});
      });
}

}  // namespace moeflux::cpu
