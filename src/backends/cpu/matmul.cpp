// Products with stored weights. A weight row is decoded once and used for all tokens, or on the way
// for a few; each output is one dot product in a fixed order, so the number of tokens in a call
// changes nothing.
#include <algorithm>

#include "backends/cpu/cpu_backend.h"

namespace moeflux::cpu {
namespace {

constexpr std::int64_t kFewRows = 4;  // of activations: fewer do not repay decoding first

// Weight rows per task: enough work to be worth a hand-over, enough tasks to share.
std::int64_t rows_per_task(std::int64_t rows, std::int64_t cols, int n_threads) {
  const std::int64_t by_work =
      std::max<std::int64_t>(1, (1 << 14) / std::max<std::int64_t>(1, cols));
  const std::int64_t by_share = std::max<std::int64_t>(1, rows / (8 * n_threads));
  return (std::max(by_work, by_share) + 3) / 4 * 4;  // kernels take four rows at once
}

bool alike(const WeightView& a, const WeightView& b) {
  return a.format == b.format && a.rows == b.rows && a.cols == b.cols;
}
bool alike(const FfnOp& a, const FfnOp& b) {
  return alike(a.gate, b.gate) && alike(a.up, b.up) && alike(a.down, b.down);
}

}  // namespace

void CpuBackend::matmul(const MatmulOp& op) {
  if (fast(op.weight)) return fast_matmul(op);
  const WeightView& w = op.weight;
  pool_.parallel_for(w.rows, rows_per_task(w.rows, w.cols, pool_.size()),
                     [&](std::int64_t begin, std::int64_t end, int worker) {
                       exact_rows(w, begin, end, op.x, op.x_stride, op.n, op.y + begin, op.y_stride,
                                  scratch(worker, w.cols));
                     });
}

// y[i * y_stride + r - begin] for rows r in [begin, end) and activations i.
void CpuBackend::exact_rows(const WeightView& w, std::int64_t begin, std::int64_t end,
                            const float* x, std::int64_t x_stride, std::int64_t n, float* y,
                            std::int64_t y_stride, float* row) const {
  if (n < kFewRows) {
    for (std::int64_t i = 0; i < n; ++i)
      kernels_.matvec(w, begin, end - begin, x + i * x_stride, y + i * y_stride, row);
    return;
  }
  for (std::int64_t r = begin; r < end; ++r) {
    kernels_.decode_row(w, r, row);
    kernels_.dot_rows(row, x, x_stride, n, w.cols, y + r - begin, y_stride);
  }
}

void CpuBackend::head_matmul(const HeadMatmulOp& op) {
  const WeightView& w = op.weight;
  const std::int64_t n_out = op.transpose ? w.cols : op.rows;
  pool_.parallel_for(op.n_heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* row = scratch(worker, w.cols);
    for (std::int64_t h = begin; h < end; ++h) {
      const float* x = op.x + h * op.x_head_stride;
      float* y = op.y + h * op.y_head_stride;
      if (op.transpose) {
        for (std::int64_t i = 0; i < op.n; ++i) std::fill_n(y + i * op.y_token_stride, n_out, 0.0f);
      }
      for (std::int64_t r = 0; r < op.rows; ++r) {
        kernels_.decode_row(w, h * op.head_rows + op.row0 + r, row);
        for (std::int64_t i = 0; i < op.n; ++i) {
          if (op.transpose) {
            kernels_.axpy(x[i * op.x_token_stride + r], row, y + i * op.y_token_stride, w.cols);
          } else {
            y[i * op.y_token_stride + r] = kernels_.dot(row, x + i * op.x_token_stride, w.cols);
          }
        }
      }
    }
  });
}

// How an operation is computed depends on its own weights alone, never on what else is in the call.
void CpuBackend::ffns(std::span<const FfnOp> ops) {
  while (!ops.empty()) {
    std::size_t n = 1;
    if (fast(ops[0])) {
      while (n < ops.size() && alike(ops[n], ops[0])) ++n;
      fast_ffns(ops.first(n));
    } else {
      exact_ffn(ops[0]);
    }
    ops = ops.subspan(n);
  }
}

void CpuBackend::exact_ffn(const FfnOp& op) {
  const std::int64_t d_model = op.gate.cols;
  const std::int64_t d_ff = op.gate.rows;
  const float* x = op.x;
  if (!op.rows_in.empty()) {
    gathered_.resize(std::max(gathered_.size(), static_cast<std::size_t>(op.n * d_model)));
    for (std::int64_t i = 0; i < op.n; ++i) {
      std::copy_n(op.x + op.rows_in[static_cast<std::size_t>(i)] * d_model, d_model,
                  gathered_.data() + i * d_model);
    }
    x = gathered_.data();
  }
  const std::int64_t grain = rows_per_task(d_ff, 2 * d_model, pool_.size());
  pool_.parallel_for(d_ff, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* row = scratch(worker, d_model + op.n * grain);
    float* up = row + d_model;  // [n, grain]
    exact_rows(op.gate, begin, end, x, d_model, op.n, op.hidden + begin, d_ff, row);
    exact_rows(op.up, begin, end, x, d_model, op.n, up, grain, row);
    for (std::int64_t i = 0; i < op.n; ++i) {
      float* hidden = op.hidden + i * d_ff + begin;
      kernels_.silu_row(hidden, hidden, end - begin);
      for (std::int64_t r = 0; r < end - begin; ++r) hidden[r] *= up[i * grain + r];
    }
  });
  const std::int64_t down_grain = rows_per_task(d_model, d_ff, pool_.size());
  pool_.parallel_for(d_model, down_grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* row = scratch(worker, d_ff + op.n * down_grain);
    if (op.rows_out.empty()) {
      exact_rows(op.down, begin, end, op.hidden, d_ff, op.n, op.y + begin, d_model, row);
      return;
    }
    float* y = row + d_ff;  // [n, end - begin]
    exact_rows(op.down, begin, end, op.hidden, d_ff, op.n, y, end - begin, row);
    for (std::int64_t i = 0; i < op.n; ++i) {
      std::copy_n(y + i * (end - begin), end - begin,
                  op.y + op.rows_out[static_cast<std::size_t>(i)] * d_model + begin);
    }
  });
}

}  // namespace moeflux::cpu
