// Products of few rows of activations: as fast as weights come from memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/experts.h"
#include "backends/cuda/kernels/matvec.h"
#include "backends/cuda/kernels/router.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {
namespace {

// Which kernels a weight takes (matvec_*.cu).
enum class Family { Common, Other, Floats, Exact, Any };
constexpr std::array<const char*, 5> kFamilyNames = {"common", "other", "floats", "exact", "any"};

bool is_at(const void* plane, std::uint64_t multiple) {
  return plane == nullptr || reinterpret_cast<std::uintptr_t>(plane) % multiple == 0;
}
std::uint64_t scale_size(gpu::ScaleType type) {
  return type == gpu::ScaleType::F32                                   ? 4
         : type == gpu::ScaleType::F16 || type == gpu::ScaleType::BF16 ? 2
                                                                       : 1;
}
bool is_aligned(const gpu::DeviceWeight& w) {
  const std::uint64_t size = scale_size(w.scale_type);
  const bool biases_are_scales = w.kind == gpu::Kind::Affine && w.zero == gpu::Zero::Bias;
  const std::uint64_t bias_size = biases_are_scales                                ? size
                                  : w.kind == gpu::Kind::Fp4 && w.has_tensor_scale ? 4
                                                                                   : 1;
  return is_at(w.data, 4) && w.row_bytes % 4 == 0 && is_at(w.scales, size) &&
         is_at(w.biases, bias_size);
}

// Whether a thread can take 32 columns at a time.
bool has_chunks(const gpu::DeviceWeight& w) {
  if (w.cols % gpu::kVectorColumns != 0 || w.cols > gpu::kMostVectorColumns) return false;
  if (w.kind == gpu::Kind::Affine || w.kind == gpu::Kind::Fp8Block)
    return w.group % gpu::kVectorColumns == 0;
  return w.kind != gpu::Kind::Fp4 || w.group % 16 == 0;
}

Family family_of(const gpu::DeviceWeight& w, bool rounds) {
  if (!has_chunks(w) || !is_aligned(w)) return Family::Any;
  if (w.kind != gpu::Kind::Affine && w.kind != gpu::Kind::Fp4) return Family::Floats;
  if (!rounds) return Family::Exact;
  const bool is_common = w.kind == gpu::Kind::Affine && (w.bits == 4 || w.bits == 8) &&
                         scale_size(w.scale_type) == 2 && w.zero == gpu::Zero::Bias &&
                         (w.group & (w.group - 1)) == 0 && w.row_bytes % 16 == 0 &&
                         is_at(w.data, 16);
  return is_common ? Family::Common : Family::Other;
}

std::string kernel_name(const char* what, Family family, int n = 0) {
  std::string name = std::string(what) + "_" + kFamilyNames[static_cast<std::size_t>(family)];
  if (n > 0 && family != Family::Any) name += n == 1 ? "_1" : "_4";
  return name;
}

bool has_digits(Family family) {
  return family == Family::Common || family == Family::Other;
}
// Of the block's memory, for a row of activations.
std::size_t shared_bytes(Family family, std::int64_t cols) {
  if (family == Family::Any) return 0;
  const std::int64_t at_once = family == Family::Common ? 2 * gpu::kWarp : 1;
  const std::int64_t chunks = pieces(cols / gpu::kVectorColumns, at_once) * at_once;
  const std::int64_t steps = (chunks + gpu::kWarp - 1) / gpu::kWarp;
  return static_cast<std::size_t>(steps * gpu::kWarp * (has_digits(family) ? 64 : 128) +
                                  chunks * 8);
}

// Kernels are made for one row of activations, or for kMostVectorRows.
unsigned shared_bytes_for(std::int64_t n_rows, std::size_t bytes_per_row) {
  return static_cast<unsigned>(bytes_per_row * (n_rows == 1 ? 1 : gpu::kMostVectorRows));
}

// Warps that all rows of weights need, when each takes what it can at a time.
std::int64_t warps_for(Family family, const gpu::DeviceWeight& w) {
  if (family == Family::Any) return w.rows;
  std::int64_t sharers = 1;
  while (sharers < w.cols / gpu::kVectorColumns && sharers < gpu::kWarp) sharers *= 2;
  return pieces(w.rows, gpu::kWarp / sharers);
}
unsigned threads_of(Family family) {
  return family == Family::Common ? gpu::kCommonThreads : gpu::kVectorThreads;
}
std::int64_t warps_of_block(Family family) {
  return threads_of(family) / gpu::kWarp;
}
unsigned blocks_for(Family family, const gpu::DeviceWeight& w, int times) {
  return pieces(warps_for(family, w), warps_of_block(family) * times);
}

gpu::ActivationParams activation(const FfnActivation& a) {
  return {a.kind == FfnActivation::Kind::Silu   ? gpu::Activation::Silu
          : a.kind == FfnActivation::Kind::Gelu ? gpu::Activation::Gelu
                                                : gpu::Activation::ClampedSwiglu,
          a.alpha, a.limit};
}

bool are_same(const View& a, const View& b) {
  return a.buffer == b.buffer && a.offset == b.offset && a.rows == b.rows && a.cols == b.cols &&
         a.stride == b.stride;
}

// What is read while the other is written would depend on the order of blocks.
bool overlap(const View& a, const View& b) {
  const Bytes x = a.bytes(), y = b.bytes();
  return x.buffer == y.buffer && x.offset < y.offset + y.size && y.offset < x.offset + x.size;
}

// But for where they lie and how many rows they have.
bool have_same_format(gpu::DeviceWeight a, const gpu::DeviceWeight& b) {
  a.data = b.data, a.scales = b.scales, a.biases = b.biases;
  a.rows = b.rows, a.block_row0 = b.block_row0;
  return std::memcmp(&a, &b, sizeof a) == 0;
}

MatmulOp down_of(const FfnOp& op) {
  return {.weight = op.down,
          .bias = op.down_bias,
          .x = op.hidden.row_range(0, op.x.rows),
          .y = op.y.row_range(0, op.x.rows)};
}

// Warps that a processor has registers for.
constexpr std::int64_t kWarpsOfProducts = 32, kWarpsOfPairs = 16;
constexpr int kSummedRows = 1;  // of weights, of a warp

// Of activations of the common kernels.
bool is_in_quads(const View& x) {
  return is_at(floats(x), 16) && x.stride % 4 == 0;
}

bool alike(const gpu::DeviceWeight& a, const gpu::DeviceWeight& b) {
  return a.kind == b.kind && a.bits == b.bits && a.cols == b.cols && a.rows == b.rows;
}

}  // namespace

std::int64_t CudaBackend::rows_at_once(std::size_t bytes_per_row) const {
  const std::size_t room = device_.most_shared_bytes() - (9u << 10);
  return gpu::kMostVectorRows * bytes_per_row <= room ? gpu::kMostVectorRows : 1;
}

// How often warps take rows of weights, so that all blocks have room at once.
std::int32_t CudaBackend::times_for(std::int64_t n_warps, std::int64_t warps_of_processor) const {
  return static_cast<std::int32_t>(pieces(n_warps, warps_of_processor * device_.n_processors()));
}

void CudaBackend::matmuls(std::span<const MatmulOp> ops) {
  std::int64_t most_rows = 0;
  for (const MatmulOp& op : ops) most_rows = std::max(most_rows, op.x.rows);
  note_rows(most_rows);
  if (most_rows > kFewRows) {
    for (const MatmulOp& op : ops) many_rows(op);
    return;
  }
  if (waiting_.norm && can_take_norm(ops)) {
    const RmsNormOp norm = *waiting_.norm;
    waiting_ = {};
    return few_rows(ops, &norm);
  }
  settle();
  const bool rounds = precision_ != Precision::Exact;
  if (ops.size() == 1 && may_wait(ops[0].x.rows) &&
      family_of(device_weight(ops[0].weight), rounds) != Family::Any) {
    waiting_.product = ops[0];
    waiting_.is_empty = false;
    return;
  }
  few_rows(ops);
}

void CudaBackend::few_rows(std::span<const MatmulOp> ops, const RmsNormOp* norm,
                           const View& total) {
  while (!ops.empty()) {
    const std::size_t n = launch_size(ops);
    few_rows_alike(ops.first(n), norm, total);
    ops = ops.subspan(n);
  }
}

// How many of the first products a launch takes.
std::size_t CudaBackend::launch_size(std::span<const MatmulOp> ops) const {
  const bool rounds = precision_ != Precision::Exact;
  const gpu::DeviceWeight first = device_weight(ops[0].weight);
  std::size_t n = 1;
  while (n < std::min<std::size_t>(ops.size(), gpu::kMostJobs)) {
    const gpu::DeviceWeight next = device_weight(ops[n].weight);
    if (!are_same(ops[n].x, ops[0].x) || !have_same_format(next, first) ||
        family_of(next, rounds) != family_of(first, rounds))
      break;
    ++n;
  }
  return n;
}

void CudaBackend::few_rows_alike(std::span<const MatmulOp> ops, const RmsNormOp* norm,
                                 const View& total) {
  const View& x = norm != nullptr ? norm->x : ops[0].x;
  auto p = zeroed<gpu::MatvecParams>();
  p.weight = shape_of(ops[0].weight);
  Family family = family_of(device_weight(ops[0].weight), precision_ != Precision::Exact);
  if (family == Family::Common && !is_in_quads(x)) family = Family::Other;
  std::int64_t n_warps = 0;
  for (const MatmulOp& op : ops) n_warps += warps_for(family, device_weight(op.weight));
  p.times = family == Family::Any ? 1 : times_for(n_warps, kWarpsOfProducts);
  const std::size_t bytes_per_row = shared_bytes(family, p.weight.cols);
  const std::int64_t at_once = rows_at_once(bytes_per_row);
  for (std::int64_t first = 0; first < x.rows; first += at_once) {
    const std::int64_t n = std::min(at_once, x.rows - first);
    p.n_rows = static_cast<std::int32_t>(n);
    p.n_jobs = 0;
    p.x = floats(x) + first * x.stride;
    p.x_stride = x.stride;
    p.total = total.empty() ? nullptr : floats(total) + first * total.stride;
    p.total_stride = total.stride;
    if (norm != nullptr) {
      p.norm.weight = floats(norm->weight);
      p.norm.out = floats(norm->out) + first * norm->out.stride;
      p.norm.out_stride = norm->out.stride;
      p.norm.eps = norm->eps;
    }
    unsigned blocks = 0;
    for (const MatmulOp& op : ops) {
      const gpu::DeviceWeight weight = device_weight(op.weight);
      gpu::VectorJob& job = p.jobs[p.n_jobs++];
      job.planes = {weight.data, weight.scales, weight.biases};
      job.bias = floats(op.bias);
      job.y = floats(op.y) + first * op.y.stride;
      job.y_stride = static_cast<std::int32_t>(op.y.stride);
      job.rows = weight.rows;
      job.block_row0 = weight.block_row0;
      job.first_block = static_cast<std::int32_t>(blocks);
      blocks += blocks_for(family, weight, p.times);
    }
    launch(kernel_name("matvec", family, n == 1 ? 1 : 4), p,
           {.x = blocks,
            .threads = threads_of(family),
            .shared_bytes = shared_bytes_for(n, bytes_per_row)});
  }
}

void CudaBackend::ffns(std::span<const FfnOp> ops) {
  for (const FfnOp& op : ops) {
    const std::int64_t n = op.rows_in.empty() ? op.x.rows : op.rows_in.cols;
    note_rows(n);
    if (n == 0) continue;
    if (n > kFewRows || !op.rows_in.empty() || !op.rows_out.empty()) {
      many_rows(op);
    } else if (waiting_.route && !waiting_.shared && may_wait(n)) {
      waiting_.shared = op;  // the routed experts come next
    } else {
      settle();
      few_rows(op);
    }
  }
}

void CudaBackend::few_rows(const FfnOp& op) {
  const bool rounds = precision_ != Precision::Exact;
  const gpu::DeviceWeight gate = device_weight(op.gate), up = device_weight(op.up);
  Family family = family_of(gate, rounds);
  if (!alike(gate, up) || family_of(up, rounds) != family) family = Family::Any;
  if (family == Family::Common && !is_in_quads(op.x)) family = Family::Other;
  const std::size_t bytes_per_row = shared_bytes(family, op.gate.cols);
  const std::int64_t at_once = rows_at_once(bytes_per_row);
  for (std::int64_t first = 0; first < op.x.rows; first += at_once) {
    const std::int64_t n = std::min(at_once, op.x.rows - first);
    auto p = zeroed<gpu::GatedParams>();
    p.gate = gate;
    p.up = up;
    p.gate_bias = floats(op.gate_bias);
    p.up_bias = floats(op.up_bias);
    p.x = floats(op.x) + first * op.x.stride;
    p.y = floats(op.hidden) + first * op.hidden.stride;
    p.x_stride = op.x.stride;
    p.y_stride = op.hidden.stride;
    p.activation = activation(op.activation);
    p.n_rows = static_cast<std::int32_t>(n);
    p.times = family == Family::Any ? 1 : times_for(warps_for(family, gate), kWarpsOfPairs);
    launch(kernel_name("gated", family, n == 1 ? 1 : 4), p,
           {.x = blocks_for(family, gate, p.times),
            .threads = threads_of(family),
            .shared_bytes = shared_bytes_for(n, bytes_per_row)});
  }
  const MatmulOp down = down_of(op);
  few_rows(std::span(&down, 1));
}

gpu::DeviceWeight CudaBackend::shape_of(Weight w) {
  w.buffer = nullptr;
  return device_weight(w);
}

void CudaBackend::hidden_of_pairs(const ExpertsOp& op, const std::optional<FfnOp>& shared) {
  const bool rounds = precision_ != Precision::Exact;
  auto p = zeroed<gpu::ExpertPairsParams>();
  p.gate = shape_of(op.table.gate);
  p.up = shape_of(op.table.up);
  p.found = found();
  p.ids = ints(op.ids);
  p.gate_bias = floats(op.gate_bias);
  p.up_bias = floats(op.up_bias);
  p.x = floats(op.h);
  p.hidden = floats(op.hidden);
  p.x_stride = op.h.stride;
  p.hidden_stride = op.hidden.stride;
  p.activation = activation(op.spec->activation);
  p.top_k = static_cast<std::int32_t>(op.ids.cols);
  p.n_pairs = static_cast<std::int32_t>(op.ids.size());

  Family family = op.table.is_aligned ? family_of(p.gate, rounds) : Family::Any;
  if (!alike(p.gate, p.up)) family = Family::Any;
  if (family == Family::Common && !is_in_quads(op.h)) family = Family::Other;
  const std::int64_t rows = op.ids.size() + (shared ? op.h.rows : 0);
  p.times = family == Family::Any ? 1 : times_for(rows * warps_for(family, p.gate), kWarpsOfPairs);
  Grid grid{.x = blocks_for(family, p.gate, p.times),
            .y = count(p.n_pairs),
            .threads = threads_of(family),
            .shared_bytes = static_cast<unsigned>(shared_bytes(family, p.gate.cols))};
  if (shared) {
    p.shared_gate = device_weight(shared->gate);
    p.shared_up = device_weight(shared->up);
    p.shared_gate_bias = floats(shared->gate_bias);
    p.shared_up_bias = floats(shared->up_bias);
    p.shared_hidden = floats(shared->hidden);
    p.shared_hidden_stride = shared->hidden.stride;
    grid.x = std::max(grid.x, blocks_for(family, p.shared_gate, p.times));
    grid.y += count(op.h.rows);
  }
  launch(kernel_name("gated_pairs", family), p, grid);
}

void CudaBackend::results_of_pairs(const ExpertsOp& op) {
  auto p = zeroed<gpu::ExpertPairsParams>();
  p.down = shape_of(op.table.down);
  p.found = found();
  p.ids = ints(op.ids);
  p.down_bias = floats(op.down_bias);
  p.hidden = floats(op.hidden);
  p.out = floats(op.out);
  p.hidden_stride = op.hidden.stride;
  p.out_stride = op.out.stride;
  p.top_k = static_cast<std::int32_t>(op.ids.cols);
  p.n_pairs = static_cast<std::int32_t>(op.ids.size());
  Family family =
      op.table.is_aligned ? family_of(p.down, precision_ != Precision::Exact) : Family::Any;
  if (family == Family::Common && !is_in_quads(op.hidden)) family = Family::Other;
  p.times = family == Family::Any
                ? 1
                : times_for(p.n_pairs * warps_for(family, p.down), kWarpsOfProducts);
  launch(kernel_name("down_pairs", family), p,
         {.x = blocks_for(family, p.down, p.times),
          .y = count(p.n_pairs),
          .threads = threads_of(family),
          .shared_bytes = static_cast<unsigned>(shared_bytes(family, p.down.cols))});
}

// What waits for the next operation.

namespace {

bool is_common(const Weight& w) {
  return family_of(device_weight(w), true) == Family::Common;
}

}  // namespace

void CudaBackend::settle() {
  if (waiting_.is_empty) return;
  const Waiting w = std::exchange(waiting_, {});
  if (w.norm) launch_norm(*w.norm);
  if (w.product) few_rows(std::span(&*w.product, 1));
  if (w.route) launch_route(*w.route);
  if (w.experts) {
    if (w.ids_copy != 0)
      copy_bytes(w.ids_copy, address(w.experts->ids.bytes()), w.experts->ids.bytes().size);
    results_of_pairs(*w.experts);
    if (w.shared) {
      const MatmulOp down = down_of(*w.shared);
      few_rows(std::span(&down, 1));
    }
  } else if (w.shared) {
    few_rows(*w.shared);
  }
  if (w.combine) launch_combine(*w.combine);
}

bool CudaBackend::can_take_norm(std::span<const MatmulOp> ops) const {
  return std::all_of(ops.begin(), ops.end(), [&](const MatmulOp& op) {
    return is_common(op.weight) && are_same(op.x, waiting_.norm->out) &&
           !overlap(op.y, waiting_.norm->x) && is_in_quads(waiting_.norm->x);
  });
}

// Whether the shared expert is one more of the pairs.
bool CudaBackend::can_take_shared(const FfnOp& shared, const ExpertsOp& op) const {
  const auto& a = shared.activation;
  const auto& b = op.spec->activation;
  return are_same(shared.x, op.h) && is_common(shared.gate) && is_common(shared.up) &&
         is_common(shared.down) && alike(device_weight(shared.gate), device_weight(shared.up)) &&
         shared.gate.cols == op.table.gate.cols && is_in_quads(shared.hidden) && a.kind == b.kind &&
         a.alpha == b.alpha && a.limit == b.limit;
}

bool CudaBackend::can_sum(const ExpertsOp& op) const {
  const gpu::DeviceWeight gate = shape_of(op.table.gate), up = shape_of(op.table.up);
  return may_wait(op.h.rows) && op.table.is_aligned && alike(gate, up) &&
         family_of(gate, true) == Family::Common &&
         family_of(shape_of(op.table.down), true) == Family::Common &&
         op.ids.cols <= gpu::kMostSummed &&
         shared_bytes(Family::Common, op.ids.cols * op.table.down.cols + gpu::kMostVectorColumns) <=
             static_cast<std::size_t>(shared_bytes_of_block()) &&
         op.out.is_packed() && is_in_quads(op.h) && is_in_quads(op.hidden);
}

// The device's part of a layer's experts in as few launches as they take: finding them, hidden
// values, and sums, which wait for combine() and add().
void CudaBackend::experts_of_few_rows(const ExpertsOp& op) {
  MOEFLUX_ASSERT(op.ids.size() <= std::int64_t{kMostPairs});
  std::optional<FfnOp> shared = std::exchange(waiting_.shared, {});
  const bool takes_shared = shared && can_sum(op) && can_take_shared(*shared, op);
  if (shared && !takes_shared) {
    const Waiting others = std::exchange(waiting_, {});
    few_rows(*shared);
    waiting_ = others;
  }
  const gpu::FindExpertsParams find = find_params(op, place_words(op.table.places), true);
  if (waiting_.route && are_same(waiting_.route->ids, op.ids)) {
    auto p = zeroed<gpu::RouteAndFindParams>();
    p.route = route_params(*waiting_.route);
    p.find = find;
    p.n_rows = static_cast<std::int32_t>(op.h.rows);
    waiting_ = {};
    launch("route_and_find", p, {.threads = 256});
  } else {
    launch("find_experts", find, {.threads = 256});
  }
  hidden_of_pairs(op, takes_shared ? shared : std::nullopt);
  if (!can_sum(op)) return results_of_pairs(op);
  waiting_.experts = op;
  if (takes_shared) waiting_.shared = shared;
  waiting_.is_empty = false;
}

void CudaBackend::combine(const CombineOp& op) {
  const Waiting& w = waiting_;
  const bool is_theirs =
      w.experts && !w.combine && op.experts.buffer == w.experts->out.buffer &&
      op.experts.offset == w.experts->out.offset && op.weights.rows == w.experts->ids.rows &&
      op.weights.cols == w.experts->ids.cols && op.weights.is_packed() &&
      (w.shared ? are_same(op.shared, w.shared->y) : op.shared.empty()) &&
      op.shared_gate.cols <= 1 && (op.shared_gate.empty() || op.shared_gate.is_packed());
  if (is_theirs) {
    waiting_.combine = op;
    return;
  }
  settle();
  launch_combine(op);
}

void CudaBackend::add(const AddOp& op) {
  MOEFLUX_ASSERT(op.x.is_packed() && op.y.is_packed());
  note_rows(op.y.rows);
  if (op.scale.empty() && waiting_.product && are_same(op.x, waiting_.product->y) &&
      !overlap(op.y, waiting_.product->y) && !overlap(op.y, waiting_.product->x)) {
    const MatmulOp product = *waiting_.product;
    waiting_ = {};
    return few_rows(std::span(&product, 1), nullptr, op.y);
  }
  if (op.scale.empty() && waiting_.combine && are_same(op.x, waiting_.combine->out)) {
    return expert_sums(std::exchange(waiting_, {}), op.y);
  }
  settle();
  launch_add(op);
}

void CudaBackend::expert_sums(const Waiting& waiting, const View& total) {
  const ExpertsOp& op = *waiting.experts;
  const std::optional<FfnOp>& shared = waiting.shared;
  const CombineOp& combine = *waiting.combine;
  auto p = zeroed<gpu::ExpertSumsParams>();
  p.down = shape_of(op.table.down);
  p.found = found();
  p.ids = ints(op.ids);
  p.ids_copy = reinterpret_cast<std::int32_t*>(waiting.ids_copy);
  p.weights = floats(combine.weights);
  p.down_bias = floats(op.down_bias);
  p.hidden = floats(op.hidden);
  p.hidden_stride = op.hidden.stride;
  p.out = floats(combine.out);
  p.out_stride = combine.out.stride;
  p.total = floats(total);
  p.total_stride = total.stride;
  p.top_k = static_cast<std::int32_t>(op.ids.cols);
  p.times = kSummedRows;
  p.pairs_of_chunk = static_cast<float>(gpu::kVectorColumns) / static_cast<float>(p.down.cols);
  std::size_t bytes = shared_bytes(Family::Common, op.ids.cols * op.table.down.cols);
  if (shared) {
    p.shared_down = device_weight(shared->down);
    p.shared_bias = floats(shared->down_bias);
    p.shared_hidden = floats(shared->hidden);
    p.shared_hidden_stride = shared->hidden.stride;
    p.shared_gate = floats(combine.shared_gate);
    p.shared_offset = static_cast<std::int32_t>((bytes + 15) / 16 * 16);
    bytes =
        static_cast<std::size_t>(p.shared_offset) + shared_bytes(Family::Common, shared->down.cols);
  }
  launch("expert_sums_common", p,
         {.x = pieces(p.down.rows, warps_of_block(Family::Common) * kSummedRows),
          .y = count(op.h.rows),
          .threads = threads_of(Family::Common),
          .shared_bytes = static_cast<unsigned>(bytes)});
}

}  // namespace moeflux::cuda
