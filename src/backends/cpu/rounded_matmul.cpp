// Products of quantized weights with rounded activations (rounded.h).
#include <algorithm>
#include <array>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/grow.h"
#include "backends/cpu/host_ops.h"
#include "base/error.h"

namespace moeflux::cpu {
namespace {

// Rows of activations.
std::int64_t rounded_per_task(std::int64_t cols) {
  return std::max<std::int64_t>(1, 8192 / cols);
}

// Weight rows per task, for a product with n rows of activations that is one of several, with as
// much work as n_rows of it have in all: enough work to be worth a dispatch and to get a stream
// through memory going, enough tasks to share evenly.
std::int64_t rows_per_task(const WeightView& w, std::int64_t n, std::int64_t n_rows,
                           int n_threads) {
  constexpr std::int64_t kCodesPerTask = 1 << 17, kTasksPerThread = 16;
  const std::int64_t by_work = kCodesPerTask / std::max<std::int64_t>(1, w.cols * n);
  const std::int64_t by_share = n_rows / (kTasksPerThread * n_threads);
  const std::int64_t rows = std::clamp<std::int64_t>(std::max(by_work, by_share), 1, w.rows);
  return (rows + kTileRows - 1) / kTileRows * kTileRows;
}

}  // namespace

namespace {

// One of several products: its rounded rows, and its part of all tasks.
struct Product {
  const HostMatmul* op;
  RoundedLayout layout;
  std::int64_t grain, first_task;
  bool rounds = true;           // or it takes the rows another one has rounded
  std::int64_t rounded_at = 0;  // in bytes

  std::int64_t n_tasks() const { return (op->weight.rows + grain - 1) / grain; }
  bool rounds_like(const Product& other) const {
    return op->x == other.op->x && op->x_stride == other.op->x_stride && op->n == other.op->n &&
           layout == other.layout;
  }
};

}  // namespace

void CpuBackend::rounded_matmuls(std::span<const HostMatmul> ops) {
  MOEFLUX_ASSERT(!ops.empty() && ops.size() <= kMostMatmuls);
  std::array<Product, kMostMatmuls> all;
  const std::span products(all.data(), ops.size());
  std::int64_t n_codes = 0, n_tasks = 0, rounded_bytes = 0;
  for (const HostMatmul& op : ops) n_codes += op.weight.rows * op.weight.cols;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const WeightView& w = ops[i].weight;
    Product& p = products[i];
    p = {.op = &ops[i],
         .layout = RoundedLayout(w.format, w.cols, product_digits_),
         .grain = rows_per_task(w, ops[i].n, n_codes / w.cols, pool_.size()),
         .first_task = n_tasks};
    n_tasks += p.n_tasks();
    const auto same = std::find_if(all.begin(), all.begin() + i,
                                   [&](const Product& other) { return p.rounds_like(other); });
    p.rounds = &*same == &p;
    p.rounded_at = p.rounds ? rounded_bytes : same->rounded_at;
    if (p.rounds) rounded_bytes += p.op->n * p.layout.row_bytes;
  }
  std::byte* rounded = grown(rounded_inputs_, static_cast<std::size_t>(rounded_bytes));
  for (const Product& p : products) {
    if (!p.rounds) continue;
    const auto round = [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) {
        kernels_.rounded->quantize(p.layout, p.op->x + row * p.op->x_stride,
                                   rounded + p.rounded_at + row * p.layout.row_bytes);
      }
    };
    pool_.parallel_for(p.op->n, rounded_per_task(p.op->weight.cols), round);
  }
  pool_.parallel_for(n_tasks, 1, [&](std::int64_t task, std::int64_t, int worker) {
    const Product* p = &products.back();
    while (p->first_task > task) --p;
    const WeightView& w = p->op->weight;
    const std::int64_t begin = (task - p->first_task) * p->grain;
    kernels_.rounded->matmul({.weight = &w,
                              .layout = &p->layout,
                              .row = begin,
                              .n_rows = std::min(p->grain, w.rows - begin),
                              .x = rounded + p->rounded_at,
                              .n = p->op->n,
                              .y = p->op->y + begin,
                              .y_stride = p->op->y_stride,
                              .rows_out = nullptr,
                              .scratch = scratch(worker, rounded_scratch_floats(p->layout))});
  });
}

namespace {

// Rounded rows of several operations, one after the other.
class RoundedRows {
 public:
  RoundedRows(std::span<const HostFfn> ops, const WeightFormat& format, std::int64_t cols,
              int digits)
      : layout_(format, cols, digits), ops_(ops) {
    for (const HostFfn& op : ops) n_ += op.n;
  }
  const RoundedLayout& layout() const { return layout_; }
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
    for (const HostFfn& op : ops_) {
      const std::int64_t from = std::max(begin, first), to = std::min(end, first + op.n);
      for (std::int64_t i = from; i < to; ++i) visit(op, i - first, i * layout_.row_bytes);
      first += op.n;
    }
  }

 private:
  RoundedLayout layout_;
  std::span<const HostFfn> ops_;
  std::int64_t n_ = 0;
};

}  // namespace

void CpuBackend::rounded_ffns(std::span<const HostFfn> ops) {
  const HostFfn& one = ops[0];
  const std::int64_t d_model = one.gate.cols, d_ff = one.gate.rows;
  const RoundedRows wide(ops, one.gate.format, d_model, ffn_digits_);
  const RoundedRows narrow(ops, one.down.format, d_ff, ffn_digits_);
  // Decoding, all experts take the same row: it is rounded once.
  const bool one_row = std::all_of(ops.begin(), ops.end(), [&](const HostFfn& op) {
    return op.n == 1 && op.input(0) == one.input(0);
  });
  std::byte* inputs = grown(rounded_inputs_, static_cast<std::size_t>(wide.bytes()));
  std::byte* hidden = grown(rounded_hidden_, static_cast<std::size_t>(narrow.bytes()));
  const std::int64_t n_mean = std::max<std::int64_t>(1, wide.size() / std::ssize(ops));

  const auto round_inputs = [&](std::int64_t begin, std::int64_t end, int) {
    wide.for_each(begin, end, [&](const HostFfn& op, std::int64_t row, std::int64_t place) {
      kernels_.rounded->quantize(wide.layout(), op.input(row), inputs + place);
    });
  };
  pool_.parallel_for(one_row ? 1 : wide.size(), rounded_per_task(d_model), round_inputs);

  // hidden = silu(gate x) * (up x), a range of its values per task.
  const std::int64_t hidden_grain =
      rows_per_task(one.gate, 2 * n_mean, d_ff * std::ssize(ops), pool_.size());
  const std::int64_t hidden_tasks = (d_ff + hidden_grain - 1) / hidden_grain;
  pool_.parallel_for(std::ssize(ops) * hidden_tasks, 1,
                     [&](std::int64_t task, std::int64_t, int worker) {
                       const auto index = static_cast<std::size_t>(task / hidden_tasks);
                       const HostFfn& op = ops[index];
                       const std::int64_t begin = task % hidden_tasks * hidden_grain;
                       const std::int64_t count = std::min(hidden_grain, d_ff - begin);
                       const RoundedLayout& layout = wide.layout();
                       const std::int64_t kernel_floats = rounded_scratch_floats(layout);
                       const std::int64_t most = std::min(op.n, kFfnRowsAtOnce);
                       float* memory = scratch(worker, kernel_floats + most * count);
                       float* up = memory + kernel_floats;  // [most, count]
                       const std::byte* x = inputs + (one_row ? 0 : wide.begin(index));
                       for (std::int64_t first = 0; first < op.n; first += most) {
                         const std::int64_t n = std::min(most, op.n - first);
                         float* gated = op.hidden + first * d_ff + begin;
                         RoundedMatmul gate_or_up{.weight = &op.gate,
                                                  .layout = &layout,
                                                  .row = begin,
                                                  .n_rows = count,
                                                  .x = x + first * layout.row_bytes,
                                                  .n = n,
                                                  .y = gated,
                                                  .y_stride = d_ff,
                                                  .rows_out = nullptr,
                                                  .scratch = memory};
                         kernels_.rounded->matmul(gate_or_up);
                         gate_or_up.weight = &op.up;
                         gate_or_up.y = up;
                         gate_or_up.y_stride = count;
                         kernels_.rounded->matmul(gate_or_up);
                         for (std::int64_t i = 0; i < n; ++i)
                           activate(op, begin, count, gated + i * d_ff, up + i * count);
                       }
                     });

  pool_.parallel_for(
      narrow.size(), rounded_per_task(d_ff), [&](std::int64_t begin, std::int64_t end, int) {
        narrow.for_each(begin, end, [&](const HostFfn& op, std::int64_t row, std::int64_t place) {
          kernels_.rounded->quantize(narrow.layout(), op.hidden + row * d_ff, hidden + place);
        });
      });

  const std::int64_t out_grain =
      rows_per_task(one.down, n_mean, d_model * std::ssize(ops), pool_.size());
  const std::int64_t out_tasks = (d_model + out_grain - 1) / out_grain;
  pool_.parallel_for(
      std::ssize(ops) * out_tasks, 1, [&](std::int64_t task, std::int64_t, int worker) {
        const auto index = static_cast<std::size_t>(task / out_tasks);
        const HostFfn& op = ops[index];
        const std::int64_t begin = task % out_tasks * out_grain;
        const RoundedLayout& layout = narrow.layout();
        kernels_.rounded->matmul({.weight = &op.down,
                                  .layout = &layout,
                                  .row = begin,
                                  .n_rows = std::min(out_grain, d_model - begin),
                                  .x = hidden + narrow.begin(index),
                                  .n = op.n,
                                  .y = op.y + begin,
                                  .y_stride = d_model,
                                  .rows_out = op.rows_out.empty() ? nullptr : op.rows_out.data(),
                                  .scratch = scratch(worker, rounded_scratch_floats(layout))});
      });
}

}  // namespace moeflux::cpu
