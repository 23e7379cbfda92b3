// Products of many rows of activations.
#include <algorithm>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernels/products.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {
namespace {

gpu::Gate gate_kind(const FfnActivation& a) {
  switch (a.kind) {
    case FfnActivation::Kind::Silu:
      return gpu::Gate::Silu;
    case FfnActivation::Kind::Gelu:
      return gpu::Gate::Gelu;
    case FfnActivation::Kind::ClampedSwiglu:
      return gpu::Gate::ClampedSwiglu;
  }
  return gpu::Gate::None;
}

const float* expert_biases(const View& view) {
  MOEFLUX_ASSERT(view.empty() || view.is_packed());
  return floats(view);
}

// What a product of `weight` writes.
gpu::ResultParams result_of(const Weight& weight, const View& bias, const View& y) {
  auto r = zeroed<gpu::ResultParams>();
  r.y = floats(y);
  r.y_stride = y.stride;
  r.biases[0] = expert_biases(bias);
  r.n_columns = static_cast<std::int32_t>(weight.rows);
  r.are_pairs = reinterpret_cast<std::uintptr_t>(r.y) % 8 == 0 && y.stride % 2 == 0;
  return r;
}
gpu::ResultParams hidden_of(const Weight& gate, const View& gate_bias, const View& up_bias,
                            const FfnActivation& activation, const View& hidden) {
  gpu::ResultParams r = result_of(gate, gate_bias, hidden);
  r.biases[1] = expert_biases(up_bias);
  r.n_columns *= 2;
  r.gate = gate_kind(activation);
  r.alpha = activation.alpha;
  r.limit = activation.limit;
  return r;
}

}  // namespace

void CudaBackend::many_rows(const MatmulOp& op) {
  if (op.x.rows == 0) return;
  auto p = zeroed<gpu::ProductParams>();
  p.result = result_of(op.weight, op.bias, op.y);
  p.weights[0] = device_weight(op.weight);
  p.x = floats(op.x);
  p.x_stride = op.x.stride;
  p.n = static_cast<std::int32_t>(op.x.rows);
  product(p, op.x.rows);
}

void CudaBackend::many_rows(const FfnOp& op) {
  const std::int64_t n = op.rows_in.empty() ? op.x.rows : op.rows_in.cols;
  if (n == 0) return;
  auto p = zeroed<gpu::ProductParams>();
  p.result = hidden_of(op.gate, op.gate_bias, op.up_bias, op.activation, op.hidden);
  p.weights[0] = device_weight(op.gate);
  p.weights[1] = device_weight(op.up);
  p.x = floats(op.x);
  p.x_stride = op.x.stride;
  p.rows = ints(op.rows_in);
  p.divisor = 1;
  p.n = static_cast<std::int32_t>(n);
  product(p, n);

  p.result = result_of(op.down, op.down_bias, op.y);
  p.result.rows = ints(op.rows_out);
  p.weights[0] = device_weight(op.down);
  p.x = floats(op.hidden);
  p.x_stride = op.hidden.stride;
  p.rows = nullptr;
  product(p, n);
}

void CudaBackend::experts_of_many_rows(const ExpertsOp& op, const std::uint64_t* places) {
  const std::int64_t n_pairs = op.ids.size();
  if (n_pairs == 0) return;
  MOEFLUX_ASSERT(op.ids.is_packed());
  const std::int64_t n_experts = op.spec->n_experts;
  const int rows_per_tile = gpu::kExactRows;
  const std::int64_t most_tiles = std::min(n_pairs, n_experts + n_pairs / rows_per_tile);

  auto lists = zeroed<gpu::ListPairsParams>();
  const std::size_t tile_bytes = static_cast<std::size_t>(most_tiles) * sizeof(gpu::RowTile);
  CUdeviceptr at = scratch(Scratch::Lists,
                           tile_bytes + static_cast<std::size_t>(n_pairs + 2 * n_experts + 1) * 4);
  lists.ids = ints(op.ids);
  lists.places = places;
  lists.tiles = reinterpret_cast<gpu::RowTile*>(at);
  lists.pairs = reinterpret_cast<std::int32_t*>(at + tile_bytes);
  lists.counts = lists.pairs + n_pairs;
  lists.begins = lists.counts + n_experts;
  lists.n_tiles = lists.begins + n_experts;
  lists.n_pairs = static_cast<std::int32_t>(n_pairs);
  lists.n_experts = static_cast<std::int32_t>(n_experts);
  lists.rows_per_tile = rows_per_tile;
  launch("list_pairs", lists, {.x = count(n_experts), .threads = n_pairs > 4096 ? 1024u : 128u});
  launch("list_tiles", lists, {.threads = 32});

  auto p = zeroed<gpu::ProductParams>();
  p.places = places;
  p.slots = address(op.table.slots, 0);
  p.tiles = lists.tiles;
  p.n_tiles = lists.n_tiles;
  p.rows = lists.pairs;
  p.n = static_cast<std::int32_t>(n_pairs);

  p.result = hidden_of(op.table.gate, op.gate_bias, op.up_bias, op.spec->activation, op.hidden);
  p.result.rows = lists.pairs;
  p.weights[0] = device_weight(op.table.gate);
  p.weights[1] = device_weight(op.table.up);
  p.first_matrix = 0;
  p.x = floats(op.h);
  p.x_stride = op.h.stride;
  p.divisor = static_cast<std::int32_t>(op.ids.cols);
  product(p, most_tiles * rows_per_tile);

  p.result = result_of(op.table.down, op.down_bias, op.out);
  p.result.rows = lists.pairs;
  p.weights[0] = device_weight(op.table.down);
  p.first_matrix = 2;
  p.x = floats(op.hidden);
  p.x_stride = op.hidden.stride;
  p.divisor = 1;
  product(p, most_tiles * rows_per_tile);
}

// Of at most so many rows, in tiles.
void CudaBackend::product(gpu::ProductParams& p, std::int64_t most_rows) {
  p.result.is_exact = true;
  launch("exact_product", p,
         {.x = pieces(p.result.n_columns, gpu::kExactColumns),
          .y = pieces(most_rows, gpu::kExactRows),
          .threads = gpu::kExactThreads});
}

}  // namespace moeflux::cuda
