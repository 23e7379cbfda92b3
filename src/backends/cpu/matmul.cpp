// Products with stored weights. For many tokens a panel of weight rows is decoded and used for as
// many of them as a cache holds, for few it is decoded on the way; each output is one dot product
// in a fixed order, so the number of tokens in a call changes nothing.
#include <algorithm>
#include <array>
#include <cstdint>

#include "backends/cpu/attention_kernels.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/grow.h"
#include "backends/cpu/host_ops.h"
#include "backends/cpu/row_dots.h"
#include "backends/cpu/rows.h"
#include "base/portable_math.h"

namespace moeflux::cpu {
namespace {

constexpr std::int64_t kTransposedRows = 32;  // decoded at once, where all outputs take each
constexpr std::int64_t kDecodedRows = 12;  // decoded at once: a multiple of what any kernel takes

// Weight rows per task: enough work to be worth a dispatch, enough tasks to share.
std::int64_t rows_per_task(std::int64_t rows, std::int64_t cols, int n_threads) {
  const std::int64_t by_work =
      std::max<std::int64_t>(1, (1 << 14) / std::max<std::int64_t>(1, cols));
  const std::int64_t by_share = std::max<std::int64_t>(1, rows / (8 * n_threads));
  const std::int64_t wanted = std::min(std::max(by_work, by_share), rows);
  return (wanted + kDecodedRows - 1) / kDecodedRows * kDecodedRows;
}

// Up to so many activations repay no decoding into memory first.
std::int64_t few_activations(const WeightFormat& format) {
  const bool is_plain = format.kind == WeightKind::F32 || format.kind == WeightKind::F16 ||
                        format.kind == WeightKind::BF16;
  return is_plain ? 8 : 4;
}

// Decoded rows start at cache lines, an odd number of them apart: rows of a power of two would all
// fall on the same few sets of a cache.
constexpr std::int64_t kLineFloats = 16;
std::int64_t panel_stride(std::int64_t cols) {
  return ((cols + kLineFloats - 1) / kLineFloats | 1) * kLineFloats;
}
std::int64_t panel_floats(std::int64_t cols, std::int64_t rows = kDecodedRows) {
  return panel_stride(cols) * rows + kLineFloats;  // the last is for the start
}
float* panel_start(float* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory) / sizeof(float);
  return memory + (kLineFloats - address % kLineFloats) % kLineFloats;
}

// Activations that stay in a cache of the core while weights pass by.
std::int64_t activations_at_once(std::int64_t cols) {
  return std::max<std::int64_t>(24, (std::int64_t{1} << 17) / std::max<std::int64_t>(1, cols));
}

bool alike(const WeightView& a, const WeightView& b) {
  return a.format == b.format && a.rows == b.rows && a.cols == b.cols;
}
bool alike(const HostFfn& a, const HostFfn& b) {
  return alike(a.gate, b.gate) && alike(a.up, b.up) && alike(a.down, b.down);
}

// y = sum over the rows r of a head of x[r] * row r, in order.
void transposed_rows(const KernelTable& kernels, const HostHeadMatrix& matrix,
                     const HeadMatmulOp& op, std::int64_t first, const float* x, float* y,
                     float* panel) {
  const WeightView& w = matrix.weight;
  const std::int64_t stride = panel_stride(w.cols);
  for (std::int64_t i = 0; i < op.x.rows; ++i) std::fill_n(y + i * op.y.stride, w.cols, 0.0f);
  for (std::int64_t r = 0; r < matrix.rows; r += kTransposedRows) {
    const std::int64_t n_rows = std::min(kTransposedRows, matrix.rows - r);
    for (std::int64_t k = 0; k < n_rows; ++k)
      kernels.decode_row(w, first + r + k, panel + k * stride);
    kernels.attention->weighted_rows({.weights = x + r,
                                      .weight_stride = op.x.stride,
                                      .n_queries = static_cast<int>(op.x.rows),
                                      .rows = panel,
                                      .row_stride = stride,
                                      .n_rows = static_cast<int>(n_rows),
                                      .d = static_cast<int>(w.cols),
                                      .out = y,
                                      .out_stride = op.y.stride});
  }
}

constexpr std::int64_t kRowsInCache = 512;

void add_to(const float* x, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

}  // namespace

void CpuBackend::matmuls(std::span<const MatmulOp> ops) {
  constexpr std::int64_t kFewRows = 8;  // with more, a product is worth a dispatch of its own
  MOEFLUX_ASSERT(ops.size() <= kMostMatmuls);
  std::array<HostMatmul, kMostMatmuls> all;
  std::transform(ops.begin(), ops.end(), all.begin(),
                 [](const MatmulOp& op) { return resolved(op); });
  const std::span<const HostMatmul> products(all.data(), ops.size());
  const bool together = std::all_of(products.begin(), products.end(), [&](const HostMatmul& op) {
    return rounds(op.weight) && op.n <= kFewRows;
  });
  if (together) {
    rounded_matmuls(products);
  } else {
    for (const HostMatmul& op : products) matmul_alone(op);
  }
  for (const HostMatmul& op : products) {
    if (op.bias == nullptr) continue;
    for (std::int64_t i = 0; i < op.n; ++i) add_to(op.bias, op.y + i * op.y_stride, op.weight.rows);
  }
}

void CpuBackend::matmul_alone(const HostMatmul& op) {
  if (rounds(op.weight)) {
    // Pieces whose rounded rows stay in the cache while all weights pass by.
    for (std::int64_t done = 0; done < op.n; done += kRowsInCache) {
      HostMatmul piece = op;
      piece.x += done * op.x_stride;
      piece.y += done * op.y_stride;
      piece.n = std::min(kRowsInCache, op.n - done);
      rounded_matmuls({&piece, 1});
    }
    return;
  }
  const WeightView& w = op.weight;
  pool_.parallel_for(w.rows, rows_per_task(w.rows, w.cols, pool_.size()),
                     [&](std::int64_t begin, std::int64_t end, int worker) {
                       exact_rows(w, begin, end, op.x, op.x_stride, op.n, op.y + begin, op.y_stride,
                                  scratch(worker, panel_floats(w.cols)));
                     });
}

// y[i * y_stride + r - begin] for rows r in [begin, end) and activations i.
// memory: panel_floats(w.cols).
void CpuBackend::exact_rows(const WeightView& w, std::int64_t begin, std::int64_t end,
                            const float* x, std::int64_t x_stride, std::int64_t n, float* y,
                            std::int64_t y_stride, float* memory) const {
  if (n <= few_activations(w.format)) {
    return kernels_.matvec({.matrix = &w,
                            .row = begin,
                            .n_rows = end - begin,
                            .x = x,
                            .x_stride = x_stride,
                            .n = n,
                            .y = y,
                            .y_stride = y_stride,
                            .scratch = memory});
  }
  const std::int64_t stride = panel_stride(w.cols), at_once = activations_at_once(w.cols);
  const std::int64_t row_bytes = data_row_bytes(w.format, w.cols);
  float* panel = panel_start(memory);
  for (std::int64_t i = 0; i < n; i += at_once) {
    for (std::int64_t r = begin; r < end; r += kDecodedRows) {
      const std::int64_t n_rows = std::min(kDecodedRows, end - r);
      for (std::int64_t k = 0; k < n_rows; ++k) kernels_.decode_row(w, r + k, panel + k * stride);
      kernels_.row_dots({.a = panel,
                         .a_stride = stride,
                         .n_a = n_rows,
                         .x = x + i * x_stride,
                         .x_stride = x_stride,
                         .n_x = std::min(at_once, n - i),
                         .n = w.cols,
                         .y = y + i * y_stride + r - begin,
                         .y_stride = y_stride,
                         .next = w.data + (r + n_rows) * row_bytes,
                         .next_bytes = std::min(kDecodedRows, end - r - n_rows) * row_bytes});
    }
  }
}

void CpuBackend::head_matmul(const HeadMatmulOp& op) {
  const HostHeadMatrix matrix(op.matrix);
  const WeightView& w = matrix.weight;
  pool_.parallel_for(op.n_heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* memory = scratch(worker, panel_floats(w.cols, kTransposedRows));
    for (std::int64_t h = begin; h < end; ++h) {
      const std::int64_t first = matrix.row(h, 0);
      const float* x = floats(op.x) + h * op.x_head_stride;
      float* y = floats(op.y) + h * op.y_head_stride;
      if (matrix.transpose) {
        transposed_rows(kernels_, matrix, op, first, x, y, panel_start(memory));
      } else {
        exact_rows(w, first, first + matrix.rows, x, op.x.stride, op.x.rows, y, op.y.stride,
                   memory);
      }
    }
  });
}

namespace {

// Rows [first, first + n) of an operation.
HostFfn rows_of(const HostFfn& op, std::int64_t first, std::int64_t n) {
  HostFfn part = op;
  const auto at = static_cast<std::size_t>(first), count = static_cast<std::size_t>(n);
  part.n = n;
  part.hidden = op.hidden + first * op.gate.rows;
  if (op.rows_in.empty()) {
    part.x = op.x + first * op.gate.cols;
  } else {
    part.rows_in = op.rows_in.subspan(at, count);
  }
  if (op.rows_out.empty()) {
    part.y = op.y + first * op.gate.cols;
  } else {
    part.rows_out = op.rows_out.subspan(at, count);
  }
  return part;
}

template <class Visit>
void for_parts(const HostFfn& op, std::int64_t most_rows, const Visit& visit) {
  for (std::int64_t first = 0; first < op.n; first += most_rows)
    visit(rows_of(op, first, std::min(most_rows, op.n - first)));
}

}  // namespace

// How an operation is computed depends on its own weights alone, never on what else is in the call.
void CpuBackend::ffns(std::span<const FfnOp> ops) {
  ffns_.clear();
  for (const FfnOp& op : ops) ffns_.push_back(resolved(op));
  std::span<const HostFfn> left = ffns_;
  while (!left.empty()) {
    const HostFfn& one = left[0];
    std::size_t n = 1;
    if (!rounds(one)) {
      if (rounds(one.gate) || rounds(one.up) || rounds(one.down))
        for_parts(one, kMixedFfnRowsAtOnce, [&](const HostFfn& part) { mixed_ffn(part); });
      else
        for_parts(one, kFfnRowsAtOnce, [&](const HostFfn& part) { exact_ffn(part); });
    } else if (one.n > kRoundedRowsAtOnce) {
      for_parts(one, kRoundedRowsAtOnce, [&](const HostFfn& part) { rounded_ffns({&part, 1}); });
    } else {
      std::int64_t n_rows = one.n;
      while (n < left.size() && alike(left[n], one) && n_rows + left[n].n <= kRoundedRowsAtOnce)
        n_rows += left[n++].n;
      rounded_ffns(left.first(n));
    }
    left = left.subspan(n);
  }
  for (const HostFfn& op : ffns_) {
    if (op.down_bias == nullptr) continue;
    for (std::int64_t i = 0; i < op.n; ++i) add_to(op.down_bias, op.output(i), op.down.rows);
  }
}

void CpuBackend::activate(const HostFfn& op, std::int64_t first, std::int64_t n, float* gate,
                          float* up) const {
  if (op.gate_bias != nullptr) add_to(op.gate_bias + first, gate, n);
  if (op.up_bias != nullptr) add_to(op.up_bias + first, up, n);
  switch (op.activation.kind) {
    case FfnActivation::Kind::Silu:
      kernels_.silu_row(gate, gate, n);
      for (std::int64_t r = 0; r < n; ++r) gate[r] *= up[r];
      return;
    case FfnActivation::Kind::Gelu: {
      constexpr float kRoot = 0.797884560802865f;  // sqrt(2 / pi)
      for (std::int64_t r = 0; r < n; ++r) {
        const float x = gate[r];
        gate[r] = x * portable::sigmoid(2.0f * kRoot * (x + 0.044715f * x * x * x)) * up[r];
      }
      return;
    }
    case FfnActivation::Kind::ClampedSwiglu: {
      const float limit = op.activation.limit;
      for (std::int64_t r = 0; r < n; ++r) {
        const float x = std::min(gate[r], limit), u = std::clamp(up[r], -limit, limit);
        gate[r] = x * portable::sigmoid(op.activation.alpha * x) * (u + 1.0f);
      }
      return;
    }
  }
}

const float* CpuBackend::gathered_rows(const HostFfn& op) {
  if (op.rows_in.empty()) return op.x;
  const std::int64_t d_model = op.gate.cols;
  float* gathered = grown(gathered_, static_cast<std::size_t>(op.n * d_model));
  for (std::int64_t i = 0; i < op.n; ++i) {
    std::copy_n(op.input(i), d_model, gathered + i * d_model);
  }
  return gathered;
}

void CpuBackend::mixed_ffn(const HostFfn& op) {
  const std::int64_t d_model = op.gate.cols, d_ff = op.gate.rows;
  const float* x = gathered_rows(op);
  float* up = grown(mixed_, static_cast<std::size_t>(op.n * (d_ff + d_model)));  // [n, d_ff]
  float* y = op.rows_out.empty() ? op.y : up + op.n * d_ff;                      // [n, d_model]
  const auto product = [&](const WeightView& weight, const float* in, float* out) {
    matmul_alone({.weight = weight,
                  .x = in,
                  .x_stride = weight.cols,
                  .n = op.n,
                  .y = out,
                  .y_stride = weight.rows});
  };
  product(op.gate, x, op.hidden);
  product(op.up, x, up);
  pool_.parallel_for(op.n, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i)
      activate(op, 0, d_ff, op.hidden + i * d_ff, up + i * d_ff);
  });
  product(op.down, op.hidden, y);
  if (op.rows_out.empty()) return;
  for (std::int64_t i = 0; i < op.n; ++i) std::copy_n(y + i * d_model, d_model, op.output(i));
}

void CpuBackend::exact_ffn(const HostFfn& op) {
  const std::int64_t d_model = op.gate.cols;
  const std::int64_t d_ff = op.gate.rows;
  const float* x = gathered_rows(op);
  const std::int64_t grain = rows_per_task(d_ff, 2 * d_model, pool_.size());
  pool_.parallel_for(d_ff, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* panel = scratch(worker, panel_floats(d_model) + op.n * grain);
    float* up = panel + panel_floats(d_model);  // [n, grain]
    exact_rows(op.gate, begin, end, x, d_model, op.n, op.hidden + begin, d_ff, panel);
    exact_rows(op.up, begin, end, x, d_model, op.n, up, grain, panel);
    for (std::int64_t i = 0; i < op.n; ++i)
      activate(op, begin, end - begin, op.hidden + i * d_ff + begin, up + i * grain);
  });
  const std::int64_t down_grain = rows_per_task(d_model, d_ff, pool_.size());
  pool_.parallel_for(d_model, down_grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* panel = scratch(worker, panel_floats(d_ff) + op.n * down_grain);
    if (op.rows_out.empty()) {
      exact_rows(op.down, begin, end, op.hidden, d_ff, op.n, op.y + begin, d_model, panel);
      return;
    }
    float* y = panel + panel_floats(d_ff);  // [n, end - begin]
    exact_rows(op.down, begin, end, op.hidden, d_ff, op.n, y, end - begin, panel);
    for (std::int64_t i = 0; i < op.n; ++i) {
      std::copy_n(y + i * (end - begin), end - begin, op.output(i) + begin);
    }
  });
}

}  // namespace moeflux::cpu
