// Products of few rows of activations: as fast as weights come from memory.
#include <algorithm>
#include <array>
#include <string>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/matvec.h"
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
  const bool is_common = w.kind == gpu::Kind::Affine && (w.bits == 4 || w.bits == 8);
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
  const std::int64_t chunks = cols / gpu::kVectorColumns;
  const std::int64_t steps = (chunks + gpu::kWarp - 1) / gpu::kWarp;
  return static_cast<std::size_t>(steps * gpu::kWarp * (has_digits(family) ? 64 : 128) +
                                  chunks * 8);
}

// Kernels are made for one row of activations, or for kMostVectorRows.
unsigned shared_bytes_for(std::int64_t n_rows, std::size_t bytes_per_row) {
  return static_cast<unsigned>(bytes_per_row * (n_rows == 1 ? 1 : gpu::kMostVectorRows));
}

// Blocks for so many rows of weights, where a warp takes `rows_per_sharer` of each sharer.
unsigned blocks_for(Family family, std::int64_t rows, std::int64_t cols, int rows_per_sharer) {
  if (family == Family::Any) return pieces(rows, gpu::kVectorWarps);
  std::int64_t sharers = 1;
  while (sharers < cols / gpu::kVectorColumns && sharers < gpu::kWarp) sharers *= 2;
  return pieces(rows, gpu::kVectorWarps * rows_per_sharer * (gpu::kWarp / sharers));
}

gpu::ActivationParams activation(const FfnActivation& a) {
  return {a.kind == FfnActivation::Kind::Silu   ? gpu::Activation::Silu
          : a.kind == FfnActivation::Kind::Gelu ? gpu::Activation::Gelu
                                                : gpu::Activation::ClampedSwiglu,
          a.alpha, a.limit};
}

bool alike(const gpu::DeviceWeight& a, const gpu::DeviceWeight& b) {
  return a.kind == b.kind && a.bits == b.bits && a.cols == b.cols && a.rows == b.rows;
}

}  // namespace

std::int64_t CudaBackend::rows_at_once(std::size_t bytes_per_row) const {
  const std::size_t room = device_.most_shared_bytes() - (9u << 10);
  return gpu::kMostVectorRows * bytes_per_row <= room ? gpu::kMostVectorRows : 1;
}

void CudaBackend::matmuls(std::span<const MatmulOp> ops) {
  std::int64_t most_rows = 0;
  for (const MatmulOp& op : ops) most_rows = std::max(most_rows, op.x.rows);
  note_rows(most_rows);
  if (most_rows <= kFewRows) return few_rows(ops);
  for (const MatmulOp& op : ops) many_rows(op);
}

void CudaBackend::few_rows(std::span<const MatmulOp> ops) {
  const bool rounds = precision_ != Precision::Exact;
  for (Family family :
       {Family::Common, Family::Other, Family::Floats, Family::Exact, Family::Any}) {
    std::int64_t n_rows = 0;
    std::size_t bytes_per_row = 0;
    for (const MatmulOp& op : ops) {
      if (family_of(device_weight(op.weight), rounds) != family) continue;
      n_rows = op.x.rows;
      bytes_per_row = std::max(bytes_per_row, shared_bytes(family, op.weight.cols));
    }
    const std::int64_t at_once = n_rows == 0 ? 1 : rows_at_once(bytes_per_row);
    for (std::int64_t first = 0; first < n_rows; first += at_once) {
      const std::int64_t n = std::min(at_once, n_rows - first);
      auto p = zeroed<gpu::MatvecParams>();
      p.n_rows = static_cast<std::int32_t>(n);
      unsigned blocks = 0;
      for (const MatmulOp& op : ops) {
        const gpu::DeviceWeight weight = device_weight(op.weight);
        if (family_of(weight, rounds) != family) continue;
        gpu::VectorJob& job = p.jobs[p.n_jobs++];
        job.weight = weight;
        job.bias = floats(op.bias);
        job.x = floats(op.x) + first * op.x.stride;
        job.y = floats(op.y) + first * op.y.stride;
        job.x_stride = op.x.stride;
        job.y_stride = op.y.stride;
        job.first_block = static_cast<std::int32_t>(blocks);
        blocks += blocks_for(family, op.weight.rows, op.weight.cols, n == 1 ? 4 : 2);
      }
      launch(kernel_name("matvec", family, n == 1 ? 1 : 4), p,
             {.x = blocks,
              .threads = gpu::kVectorThreads,
              .shared_bytes = shared_bytes_for(n, bytes_per_row)});
    }
  }
}

void CudaBackend::ffns(std::span<const FfnOp> ops) {
  for (const FfnOp& op : ops) {
    const std::int64_t n = op.rows_in.empty() ? op.x.rows : op.rows_in.cols;
    note_rows(n);
    if (n == 0) continue;
    if (n <= kFewRows && op.rows_in.empty() && op.rows_out.empty())
      few_rows(op);
    else
      many_rows(op);
  }
}

void CudaBackend::few_rows(const FfnOp& op) {
  const bool rounds = precision_ != Precision::Exact;
  const gpu::DeviceWeight gate = device_weight(op.gate), up = device_weight(op.up);
  Family family = family_of(gate, rounds);
  if (!alike(gate, up) || family_of(up, rounds) != family) family = Family::Any;
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
    launch(kernel_name("gated", family, n == 1 ? 1 : 4), p,
           {.x = blocks_for(family, op.gate.rows, op.gate.cols, n == 1 ? 2 : 1),
            .threads = gpu::kVectorThreads,
            .shared_bytes = shared_bytes_for(n, bytes_per_row)});
  }
  const MatmulOp down{.weight = op.down,
                      .bias = op.down_bias,
                      .x = op.hidden.row_range(0, op.x.rows),
                      .y = op.y.row_range(0, op.x.rows)};
  few_rows(std::span(&down, 1));
}

void CudaBackend::pairs_of_few_rows(const ExpertsOp& op, const gpu::FoundExpert* found) {
  const bool rounds = precision_ != Precision::Exact;
  auto p = zeroed<gpu::ExpertPairsParams>();
  const auto shape = [](Weight w) {
    w.buffer = nullptr;
    return device_weight(w);
  };
  p.gate = shape(op.table.gate);
  p.up = shape(op.table.up);
  p.down = shape(op.table.down);
  p.found = found;
  p.ids = ints(op.ids);
  p.gate_bias = floats(op.gate_bias);
  p.up_bias = floats(op.up_bias);
  p.down_bias = floats(op.down_bias);
  p.x = floats(op.h);
  p.hidden = floats(op.hidden);
  p.out = floats(op.out);
  p.x_stride = op.h.stride;
  p.hidden_stride = op.hidden.stride;
  p.out_stride = op.out.stride;
  p.activation = activation(op.spec->activation);
  p.top_k = static_cast<std::int32_t>(op.ids.cols);
  const unsigned pairs = count(op.ids.size());

  Family family = op.table.is_aligned ? family_of(p.gate, rounds) : Family::Any;
  if (!alike(p.gate, p.up)) family = Family::Any;
  launch(kernel_name("gated_pairs", family), p,
         {.x = blocks_for(family, p.gate.rows, p.gate.cols, 2),
          .y = pairs,
          .threads = gpu::kVectorThreads,
          .shared_bytes = static_cast<unsigned>(shared_bytes(family, p.gate.cols))});
  family = op.table.is_aligned ? family_of(p.down, rounds) : Family::Any;
  launch(kernel_name("down_pairs", family), p,
         {.x = blocks_for(family, p.down.rows, p.down.cols, 4),
          .y = pairs,
          .threads = gpu::kVectorThreads,
          .shared_bytes = static_cast<unsigned>(shared_bytes(family, p.down.cols))});
}

}  // namespace moeflux::cuda
