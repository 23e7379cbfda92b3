// Products with stored weights. A weight row is decoded once and used for all tokens; each output
// is one dot product in a fixed order, so the number of tokens in a call changes nothing.
#include <algorithm>

#include "backends/cpu/cpu_backend.h"

namespace moeflux::cpu {
namespace {

// Weight rows per task: enough work to be worth a hand-over, enough tasks to share.
std::int64_t rows_per_task(std::int64_t rows, std::int64_t cols, int n_threads) {
  const std::int64_t by_work =
      std::max<std::int64_t>(1, (1 << 14) / std::max<std::int64_t>(1, cols));
  const std::int64_t by_share = std::max<std::int64_t>(1, rows / (8 * n_threads));
  return std::max(by_work, by_share);
}

}  // namespace

void CpuBackend::matmul(const MatmulOp& op) {
  if (fast(op.weight)) return fast_matmul(op);
  const WeightView& w = op.weight;
  pool_.parallel_for(w.rows, rows_per_task(w.rows, w.cols, pool_.size()),
                     [&](std::int64_t begin, std::int64_t end, int worker) {
                       float* row = scratch(worker, w.cols);
                       for (std::int64_t r = begin; r < end; ++r) {
                         kernels_.decode_row(w, r, row);
                         kernels_.dot_rows(row, op.x, op.x_stride, op.n, w.cols, op.y + r,
                                           op.y_stride);
                       }
                     });
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

void CpuBackend::ffn(const FfnOp& op) {
  if (fast(op.gate) && op.up.format == op.gate.format && fast(op.down)) return fast_ffn(op);
  exact_ffn(op);
}

void CpuBackend::exact_ffn(const FfnOp& op) {
  const std::int64_t d_model = op.gate.cols;
  const std::int64_t d_ff = op.gate.rows;
  const auto source_row = [&](std::int64_t i) {
    return op.rows_in.empty() ? i : op.rows_in[static_cast<std::size_t>(i)];
  };
  const auto target_row = [&](std::int64_t i) {
    return op.rows_out.empty() ? i : op.rows_out[static_cast<std::size_t>(i)];
  };
  pool_.parallel_for(d_ff, rows_per_task(d_ff, 2 * d_model, pool_.size()),
                     [&](std::int64_t begin, std::int64_t end, int worker) {
                       float* gate = scratch(worker, 2 * d_model);
                       float* up = gate + d_model;
                       for (std::int64_t r = begin; r < end; ++r) {
                         kernels_.decode_row(op.gate, r, gate);
                         kernels_.decode_row(op.up, r, up);
                         for (std::int64_t i = 0; i < op.n; ++i) {
                           const float* x = op.x + source_row(i) * d_model;
                           op.hidden[i * d_ff + r] =
                               silu(kernels_.dot(gate, x, d_model)) * kernels_.dot(up, x, d_model);
                         }
                       }
                     });
  pool_.parallel_for(d_model, rows_per_task(d_model, d_ff, pool_.size()),
                     [&](std::int64_t begin, std::int64_t end, int worker) {
                       float* down = scratch(worker, d_ff);
                       for (std::int64_t r = begin; r < end; ++r) {
                         kernels_.decode_row(op.down, r, down);
                         for (std::int64_t i = 0; i < op.n; ++i) {
                           op.y[target_row(i) * d_model + r] =
                               kernels_.dot(down, op.hidden + i * d_ff, d_ff);
                         }
                       }
                     });
}

}  // namespace moeflux::cpu
