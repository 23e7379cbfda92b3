// Products of quantized weights with rounded activations (q8.h).
#include <algorithm>

#include "backends/cpu/cpu_backend.h"

namespace moeflux::cpu {
namespace {

constexpr std::int64_t kRoundedPerTask = 4;  // rows of activations

// Weight rows per task, for n_matrices products with n rows of activations each: enough work to be
// worth a hand-over and to get a stream through memory going, enough tasks to share evenly.
std::int64_t rows_per_task(const WeightView& w, std::int64_t n, std::int64_t n_matrices,
                           int n_threads) {
  constexpr std::int64_t kCodesPerTask = 1 << 17, kTasksPerThread = 16;
  const std::int64_t by_work = kCodesPerTask / std::max<std::int64_t>(1, w.cols * n);
  const std::int64_t by_share = w.rows * n_matrices / (kTasksPerThread * n_threads);
  const std::int64_t rows = std::clamp<std::int64_t>(std::max(by_work, by_share), 1, w.rows);
  return (rows + kPanelRows - 1) / kPanelRows * kPanelRows;
}

}  // namespace

std::byte* CpuBackend::rounded_rows(AlignedBuffer& buffer, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  if (buffer.size() < size) buffer = AlignedBuffer(size);
  return buffer.data();
}

void CpuBackend::fast_matmul(const MatmulOp& op) {
  const WeightView& w = op.weight;
  const Q8Layout layout(w.format, w.cols, n_digits_);
  std::byte* x = rounded_rows(rounded_inputs_, op.n * layout.row_bytes);
  pool_.parallel_for(op.n, kRoundedPerTask, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      kernels_.q8->quantize(layout, op.x + i * op.x_stride, x + i * layout.row_bytes);
    }
  });
  pool_.parallel_for(w.rows, rows_per_task(w, op.n, 1, pool_.size()),
                     [&](std::int64_t begin, std::int64_t end, int worker) {
                       kernels_.q8->matmul({.weight = &w,
                                            .layout = &layout,
                                            .row = begin,
                                            .n_rows = end - begin,
                                            .x = x,
                                            .n = op.n,
                                            .y = op.y + begin,
                                            .y_stride = op.y_stride,
                                            .rows_out = nullptr,
                                            .scratch = scratch(worker, q8_scratch_floats(layout))});
                     });
}

namespace {

// Rounded rows of several operations, one after the other.
class RoundedRows {
 public:
  RoundedRows(std::span<const FfnOp> ops, const WeightFormat& format, std::int64_t cols, int digits)
      : layout_(format, cols, digits), ops_(ops) {
    for (const FfnOp& op : ops) n_ += op.n;
  }
  const Q8Layout& layout() const { return layout_; }
  std::int64_t size() const { return n_; }
  std::int64_t bytes() const { return n_ * layout_.row_bytes; }
  // Where the rows of an operation begin.
  std::int64_t begin(std::size_t index) const {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < index; ++i) first += ops_[i].n;
    return first * layout_.row_bytes;
  }
  // Calls visit(operation, row in it, where it lies) for rows [begin, end) of all.
  template <class Visit>
  void for_each(std::int64_t begin, std::int64_t end, Visit visit) const {
    std::int64_t first = 0;
    for (const FfnOp& op : ops_) {
      const std::int64_t from = std::max(begin, first), to = std::min(end, first + op.n);
      for (std::int64_t i = from; i < to; ++i) visit(op, i - first, i * layout_.row_bytes);
      first += op.n;
    }
  }

 private:
  Q8Layout layout_;
  std::span<const FfnOp> ops_;
  std::int64_t n_ = 0;
};

}  // namespace

void CpuBackend::fast_ffns(std::span<const FfnOp> ops) {
  const FfnOp& one = ops[0];
  const std::int64_t d_model = one.gate.cols, d_ff = one.gate.rows;
  const RoundedRows wide(ops, one.gate.format, d_model, n_digits_);
  const RoundedRows narrow(ops, one.down.format, d_ff, n_digits_);
  std::byte* inputs = rounded_rows(rounded_inputs_, wide.bytes());
  std::byte* hidden = rounded_rows(rounded_hidden_, narrow.bytes());
  const std::int64_t n_mean = std::max<std::int64_t>(1, wide.size() / std::ssize(ops));

  pool_.parallel_for(wide.size(), kRoundedPerTask, [&](std::int64_t begin, std::int64_t end, int) {
    wide.for_each(begin, end, [&](const FfnOp& op, std::int64_t row, std::int64_t place) {
      const std::int64_t from =
          op.rows_in.empty() ? row : op.rows_in[static_cast<std::size_t>(row)];
      kernels_.q8->quantize(wide.layout(), op.x + from * d_model, inputs + place);
    });
  });

  // hidden = silu(gate x) * (up x), a range of its values per task.
  const std::int64_t hidden_grain =
      rows_per_task(one.gate, 2 * n_mean, std::ssize(ops), pool_.size());
  const std::int64_t hidden_tasks = (d_ff + hidden_grain - 1) / hidden_grain;
  pool_.parallel_for(std::ssize(ops) * hidden_tasks, 1,
                     [&](std::int64_t task, std::int64_t, int worker) {
                       const auto index = static_cast<std::size_t>(task / hidden_tasks);
                       const FfnOp& op = ops[index];
                       const std::int64_t begin = task % hidden_tasks * hidden_grain;
                       const std::int64_t count = std::min(hidden_grain, d_ff - begin);
                       const Q8Layout& layout = wide.layout();
                       const std::int64_t kernel_floats = q8_scratch_floats(layout);
                       float* memory = scratch(worker, kernel_floats + op.n * count);
                       float* up = memory + kernel_floats;  // [n, count]
                       Q8Matmul gate_or_up{.weight = &op.gate,
                                           .layout = &layout,
                                           .row = begin,
                                           .n_rows = count,
                                           .x = inputs + wide.begin(index),
                                           .n = op.n,
                                           .y = op.hidden + begin,
                                           .y_stride = d_ff,
                                           .rows_out = nullptr,
                                           .scratch = memory};
                       kernels_.q8->matmul(gate_or_up);
                       gate_or_up.weight = &op.up;
                       gate_or_up.y = up;
                       gate_or_up.y_stride = count;
                       kernels_.q8->matmul(gate_or_up);
                       for (std::int64_t i = 0; i < op.n; ++i) {
                         float* values = op.hidden + i * d_ff + begin;
                         kernels_.silu_row(values, values, count);
                         for (std::int64_t r = 0; r < count; ++r) values[r] *= up[i * count + r];
                       }
                     });

  pool_.parallel_for(
      narrow.size(), kRoundedPerTask, [&](std::int64_t begin, std::int64_t end, int) {
        narrow.for_each(begin, end, [&](const FfnOp& op, std::int64_t row, std::int64_t place) {
          kernels_.q8->quantize(narrow.layout(), op.hidden + row * d_ff, hidden + place);
        });
      });

  const std::int64_t out_grain = rows_per_task(one.down, n_mean, std::ssize(ops), pool_.size());
  const std::int64_t out_tasks = (d_model + out_grain - 1) / out_grain;
  pool_.parallel_for(
      std::ssize(ops) * out_tasks, 1, [&](std::int64_t task, std::int64_t, int worker) {
        const auto index = static_cast<std::size_t>(task / out_tasks);
        const FfnOp& op = ops[index];
        const std::int64_t begin = task % out_tasks * out_grain;
        const Q8Layout& layout = narrow.layout();
        kernels_.q8->matmul({.weight = &op.down,
                             .layout = &layout,
                             .row = begin,
                             .n_rows = std::min(out_grain, d_model - begin),
                             .x = hidden + narrow.begin(index),
                             .n = op.n,
                             .y = op.y + begin,
                             .y_stride = d_model,
                             .rows_out = op.rows_out.empty() ? nullptr : op.rows_out.data(),
                             .scratch = scratch(worker, q8_scratch_floats(layout))});
      });
}

}  // namespace moeflux::cpu
