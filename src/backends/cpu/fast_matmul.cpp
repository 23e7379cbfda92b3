// Products of quantized weights with rounded activations (q8.h). For fine precision a row of
// activations becomes two rows of 8 bits, the second being what the first leaves over; their
// products are added.
#include <algorithm>

#include "backends/cpu/cpu_backend.h"

namespace moeflux::cpu {
namespace {

constexpr std::int64_t kRowBlock = 4;         // rows the kernels take at once
constexpr std::int64_t kRoundedPerTask = 16;  // rows of activations

// Weight rows per task: enough work to be worth a hand-over, enough tasks to share evenly.
std::int64_t rows_per_task(const WeightView& w, std::int64_t n, int n_threads) {
  constexpr std::int64_t kCodesPerTask = 1 << 16;
  const std::int64_t by_work = kCodesPerTask / std::max<std::int64_t>(1, w.cols * n);
  const std::int64_t by_share = w.rows / (16 * n_threads);
  const std::int64_t rows = std::max({by_work, by_share, std::int64_t{1}});
  return (rows + kRowBlock - 1) / kRowBlock * kRowBlock;
}

}  // namespace

std::byte* CpuBackend::rounded_rows(AlignedBuffer& buffer, const Q8Layout& layout, std::int64_t n) {
  const auto bytes = static_cast<std::size_t>(n * n_terms_ * layout.row_bytes);
  if (buffer.size() < bytes) buffer = AlignedBuffer(bytes);
  return buffer.data();
}

void CpuBackend::round_row(const Q8Layout& layout, const float* x, std::byte* rows,
                           std::int64_t number) {
  std::byte* row = rows + number * n_terms_ * layout.row_bytes;
  kernels_.q8->quantize(layout, x, row, n_terms_ == 2 ? row + layout.row_bytes : nullptr);
}

// The kernel's product, with op.n counting rows of activations. terms: [2 n, n_rows] of scratch,
// used for fine precision.
void CpuBackend::product(const Q8Matmul& op, float* terms) {
  if (n_terms_ == 1) return kernels_.q8->matmul(op);
  Q8Matmul both = op;
  both.n = 2 * op.n;
  both.y = terms;
  both.y_stride = op.n_rows;
  both.rows_out = nullptr;
  kernels_.q8->matmul(both);
  for (std::int64_t i = 0; i < op.n; ++i) {
    const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i] : i;
    const float* first = terms + 2 * i * op.n_rows;
    for (std::int64_t r = 0; r < op.n_rows; ++r) {
      op.y[target * op.y_stride + r] = first[r] + first[op.n_rows + r];
    }
  }
}

void CpuBackend::fast_matmul(const MatmulOp& op) {
  const WeightView& w = op.weight;
  const Q8Layout layout(w.format, w.cols);
  std::byte* x = rounded_rows(rounded_inputs_, layout, op.n);
  pool_.parallel_for(op.n, kRoundedPerTask, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      round_row(layout, op.x + i * op.x_stride, x, i);
    }
  });
  pool_.parallel_for(w.rows, rows_per_task(w, op.n, pool_.size()),
                     [&](std::int64_t begin, std::int64_t end, int worker) {
                       const std::int64_t kernel = q8_scratch_floats(layout);
                       float* memory = scratch(worker, kernel + 2 * op.n * (end - begin));
                       product({.weight = &w,
                                .layout = &layout,
                                .row = begin,
                                .n_rows = end - begin,
                                .x = x,
                                .n = op.n,
                                .y = op.y + begin,
                                .y_stride = op.y_stride,
                                .rows_out = nullptr,
                                .scratch = memory},
                               memory + kernel);
                     });
}

namespace {

// The rows of several operations, numbered through.
class RowsOfOps {
 public:
  explicit RowsOfOps(std::span<const FfnOp> ops) : ops_(ops) {
    for (const FfnOp& op : ops) n_ += op.n;
  }
  std::int64_t size() const { return n_; }
  // Calls visit(operation, row in it, number) for numbers [begin, end).
  template <class Visit>
  void for_each(std::int64_t begin, std::int64_t end, Visit visit) const {
    std::int64_t first = 0;
    for (const FfnOp& op : ops_) {
      const std::int64_t from = std::max(begin, first), to = std::min(end, first + op.n);
      for (std::int64_t i = from; i < to; ++i) visit(op, i - first, i);
      first += op.n;
    }
  }
  // The number of the first row of an operation.
  std::int64_t first(std::size_t index) const {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < index; ++i) first += ops_[i].n;
    return first;
  }

 private:
  std::span<const FfnOp> ops_;
  std::int64_t n_ = 0;
};

}  // namespace

void CpuBackend::fast_ffns(std::span<const FfnOp> ops) {
  const FfnOp& one = ops[0];
  const std::int64_t d_model = one.gate.cols, d_ff = one.gate.rows;
  const Q8Layout wide(one.gate.format, d_model), narrow(one.down.format, d_ff);
  const RowsOfOps rows(ops);
  std::byte* inputs = rounded_rows(rounded_inputs_, wide, rows.size());
  std::byte* hidden = rounded_rows(rounded_hidden_, narrow, rows.size());
  const std::int64_t n_mean = std::max<std::int64_t>(1, rows.size() / std::ssize(ops));

  pool_.parallel_for(rows.size(), kRoundedPerTask, [&](std::int64_t begin, std::int64_t end, int) {
    rows.for_each(begin, end, [&](const FfnOp& op, std::int64_t row, std::int64_t number) {
      const std::int64_t from =
          op.rows_in.empty() ? row : op.rows_in[static_cast<std::size_t>(row)];
      round_row(wide, op.x + from * d_model, inputs, number);
    });
  });

  // hidden = silu(gate x) * (up x), a range of its values per task.
  const std::int64_t hidden_grain = rows_per_task(one.gate, 2 * n_mean, pool_.size());
  const std::int64_t hidden_tasks = (d_ff + hidden_grain - 1) / hidden_grain;
  pool_.parallel_for(
      std::ssize(ops) * hidden_tasks, 1, [&](std::int64_t task, std::int64_t, int worker) {
        const auto index = static_cast<std::size_t>(task / hidden_tasks);
        const FfnOp& op = ops[index];
        const std::int64_t begin = task % hidden_tasks * hidden_grain;
        const std::int64_t count = std::min(hidden_grain, d_ff - begin);
        const std::int64_t kernel_floats = q8_scratch_floats(wide);
        float* memory = scratch(worker, kernel_floats + 3 * op.n * count);
        float* up = memory + kernel_floats;  // [n, count]
        float* terms = up + op.n * count;
        Q8Matmul gate_or_up{.weight = &op.gate,
                            .layout = &wide,
                            .row = begin,
                            .n_rows = count,
                            .x = inputs + rows.first(index) * n_terms_ * wide.row_bytes,
                            .n = op.n,
                            .y = op.hidden + begin,
                            .y_stride = d_ff,
                            .rows_out = nullptr,
                            .scratch = memory};
        product(gate_or_up, terms);
        gate_or_up.weight = &op.up;
        gate_or_up.y = up;
        gate_or_up.y_stride = count;
        product(gate_or_up, terms);
        for (std::int64_t i = 0; i < op.n; ++i) {
          float* values = op.hidden + i * d_ff + begin;
          for (std::int64_t r = 0; r < count; ++r) values[r] = silu(values[r]) * up[i * count + r];
        }
      });

  pool_.parallel_for(rows.size(), kRoundedPerTask, [&](std::int64_t begin, std::int64_t end, int) {
    rows.for_each(begin, end, [&](const FfnOp& op, std::int64_t row, std::int64_t number) {
      round_row(narrow, op.hidden + row * d_ff, hidden, number);
    });
  });

  const std::int64_t out_grain = rows_per_task(one.down, n_mean, pool_.size());
  const std::int64_t out_tasks = (d_model + out_grain - 1) / out_grain;
  pool_.parallel_for(std::ssize(ops) * out_tasks, 1,
                     [&](std::int64_t task, std::int64_t, int worker) {
                       const auto index = static_cast<std::size_t>(task / out_tasks);
                       const FfnOp& op = ops[index];
                       const std::int64_t begin = task % out_tasks * out_grain;
                       const std::int64_t count = std::min(out_grain, d_model - begin);
                       const std::int64_t kernel_floats = q8_scratch_floats(narrow);
                       float* memory = scratch(worker, kernel_floats + 2 * op.n * count);
                       product({.weight = &op.down,
                                .layout = &narrow,
                                .row = begin,
                                .n_rows = count,
                                .x = hidden + rows.first(index) * n_terms_ * narrow.row_bytes,
                                .n = op.n,
                                .y = op.y + begin,
                                .y_stride = d_model,
                                .rows_out = op.rows_out.empty() ? nullptr : op.rows_out.data(),
                                .scratch = memory},
                               memory + kernel_floats);
                     });
}

}  // namespace moeflux::cpu
