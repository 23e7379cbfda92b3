// Attention over latents, and the products with the matrices of heads around it.
#include <algorithm>

#include "backends/cuda/attention_plans.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {
namespace {

constexpr std::size_t kLatentBytes = 48u << 20;  // queries and results in the absorbed form

}  // namespace

void CudaBackend::latent_attention(const LatentAttentionOp& op) {
  const MlaSpec& s = *op.spec;
  MOEFLUX_ASSERT(op.kv.shape.layout == KvLayout::Rows && op.kv.shape.d == s.d_row());
  note_rows(op.q.rows);
  gpu::AttentionParams p = attention_params(op.q_latent, op.positions, op.out, s.scale);
  p.q_head = p.out_head = s.kv_rank;
  p.q_rest = floats(op.q) + s.d_nope;
  p.rest_stride = op.q.stride;
  p.rest_head = s.d_query();
  p.k = p.v = device_kv(op.kv);
  p.values_are_keys = 1;
  p.n_groups = 1;
  p.heads_per_group = s.n_heads;
  p.d = s.d_row();
  p.d_first = p.d_value = s.kv_rank;
  attend(p, op.kv.shape.capacity);
}

bool CudaBackend::multiply_out(const ExpandedAttentionOp& op) {
  const MlaSpec& s = *op.spec;
  const std::int64_t most_shared = shared_bytes_of_block();
  gpu::AttentionParams p = attention_params(op.q, op.positions, op.out, s.scale);
  p.q_head = s.d_query();
  p.out_head = s.d_value;
  p.heads_per_group = 1;
  p.d = p.d_first = s.d_query();
  p.d_value = s.d_value;
  const ManyPlan* plan = many_tokens_plan(p, most_shared);
  if (plan == nullptr || gpu::kExpandSharedBytes > most_shared) return false;

  // Some heads at a time, that their keys and values fit for many positions.
  const unsigned tiles = pieces(op.q.rows, plan->queries);
  const int at_once = static_cast<int>(
      std::min<std::int64_t>(pieces(2 * device_.n_processors(), tiles), s.n_heads));
  const int width = static_cast<int>(pieces(s.kv_rank, gpu::kExpandDepth)) * gpu::kExpandDepth;
  const int row_width = std::max(static_cast<int>(pieces(s.d_row(), 16)) * 16, width);
  const std::int64_t head_rows = s.d_nope + s.d_value;
  const std::int64_t weight_halves = at_once * head_rows * width;

  auto halves = zeroed<gpu::HeadHalvesParams>();
  halves.keys = device_weight(op.keys.weight);
  halves.values = device_weight(op.values.weight);
  halves.key_head_rows = op.keys.head_rows;
  halves.key_row0 = op.keys.row0;
  halves.value_head_rows = op.values.head_rows;
  halves.value_row0 = op.values.row0;
  halves.keys_transposed = op.keys.transpose;
  halves.rank = s.kv_rank;
  halves.d_nope = s.d_nope;
  halves.d_value = s.d_value;
  halves.width = width;
  for (int head = 0; head < s.n_heads; head += at_once) {
    gpu::AttentionParams part = p;
    part.n_groups = std::min(at_once, s.n_heads - head);
    part.q += head * p.q_head;
    part.out += head * p.out_head;
    bool has_weights = false;
    attend_many(*plan, part, op.kv.shape.capacity, [&](const Copies& copies) {
      const std::int64_t latent_halves = copies.halves(row_width);
      const CUdeviceptr memory = scratch(
          Scratch::Activations, static_cast<std::size_t>(2 * (weight_halves + latent_halves) +
                                                         4 * (copies.segment / gpu::kKvTile)));
      halves.to = reinterpret_cast<std::uint16_t*>(memory);
      halves.first_head = head;
      if (!has_weights)
        launch(
            "decode_heads", halves,
            {.x = count(head_rows), .y = count(part.n_groups), .threads = gpu::kHeadHalvesThreads});
      has_weights = true;
      std::uint16_t* latents = halves.to + weight_halves;
      auto* factors = reinterpret_cast<float*>(latents + latent_halves);
      stage_kv(device_kv(op.kv), part, 1, {latents, factors, 0, 0, row_width}, copies.begin,
               copies.end);
      auto expand = zeroed<gpu::ExpandParams>();
      expand.latents = latents;
      expand.latent_factors = factors;
      expand.latents_stride = row_width;
      expand.weights = halves.to;
      expand.width = width;
      expand.keys = copies.keys;
      expand.values = copies.value_rows;
      expand.keys_head = copies.halves(copies.d);
      expand.values_head = copies.halves(copies.values);
      expand.key_values = copies.d;
      expand.value_values = copies.values;
      expand.positions = p.positions;
      expand.n = p.n;
      expand.begin = copies.begin;
      expand.end = copies.end;
      expand.rank = s.kv_rank;
      expand.d_nope = s.d_nope;
      expand.d_rope = s.d_rope;
      expand.d_value = s.d_value;
      launch("expand_latents", expand,
             {.x = pieces(copies.end - copies.begin, gpu::kExpandSide),
              .y = pieces(head_rows, gpu::kExpandSide),
              .z = count(part.n_groups),
              .threads = gpu::kExpandThreads,
              .shared_bytes = gpu::kExpandSharedBytes});
      return false;
    });
  }
  return true;
}

// Else in the absorbed form, for as many tokens at a time as there is memory for.
void CudaBackend::expanded_attention(const ExpandedAttentionOp& op) {
  const MlaSpec& s = *op.spec;
  const std::int64_t wide = std::int64_t{s.n_heads} * s.kv_rank;
  const std::size_t row_bytes = 2 * static_cast<std::size_t>(wide) * sizeof(float);
  const std::int64_t at_once =
      std::max<std::int64_t>(static_cast<std::int64_t>(kLatentBytes / row_bytes), 1);
  note_rows(op.q.rows);
  if (op.q.rows == 0 || (precision_ != Precision::Exact && multiply_out(op))) return;
  for (std::int64_t first = 0; first < op.q.rows; first += at_once) {
    const std::int64_t n = std::min(at_once, op.q.rows - first);
    const CUdeviceptr memory =
        scratch(Scratch::Activations, static_cast<std::size_t>(n) * row_bytes);
    float* q_latent = reinterpret_cast<float*>(memory);
    float* attended = q_latent + n * wide;
    const View q = op.q.row_range(first, n), out = op.out.row_range(first, n);
    head_products(op.keys, s.n_heads, n, {floats(q), q.stride, s.d_query()},
                  {q_latent, wide, s.kv_rank});
    auto p = zeroed<gpu::AttentionParams>();
    p.q = q_latent;
    p.out = attended;
    p.q_stride = p.out_stride = wide;
    p.q_head = p.out_head = s.kv_rank;
    p.q_rest = floats(q) + s.d_nope;
    p.rest_stride = q.stride;
    p.rest_head = s.d_query();
    p.positions = ints(op.positions) + first;
    p.k = p.v = device_kv(op.kv);
    p.values_are_keys = 1;
    p.n = static_cast<std::int32_t>(n);
    p.n_groups = p.n_pieces = 1;
    p.heads_per_group = s.n_heads;
    p.d = s.d_row();
    p.d_first = p.d_value = s.kv_rank;
    p.scale = attention_params(q, op.positions, out, s.scale).scale;
    attend(p, op.kv.shape.capacity);
    head_products(op.values, s.n_heads, n, {attended, wide, s.kv_rank},
                  {floats(out), out.stride, s.d_value});
  }
}

void CudaBackend::head_products(const HeadMatrix& matrix, int n_heads, std::int64_t n,
                                const HeadRows& x, const HeadRows& y) {
  if (n == 0) return;
  auto p = zeroed<gpu::HeadMatmulParams>();
  p.weight = device_weight(matrix.weight);
  p.x = x.data;
  p.x_stride = x.stride;
  p.x_head = x.head_stride;
  p.y = y.data;
  p.y_stride = y.stride;
  p.y_head = y.head_stride;
  p.head_rows = matrix.head_rows;
  p.row0 = matrix.row0;
  p.rows = static_cast<std::int32_t>(matrix.rows);
  p.n = static_cast<std::int32_t>(n);
  const unsigned inputs = pieces(n, gpu::kHeadInputs);
  const std::int64_t cols = matrix.weight.cols;
  const Grid grid = {
      .x = matrix.transpose ? pieces(cols, gpu::kHeadColumns) : pieces(matrix.rows, gpu::kHeadRows),
      .y = count(n_heads),
      .z = inputs,
      .threads = gpu::kHeadThreads,
      .shared_bytes = matrix.transpose ? count(4 * gpu::kHeadThreads / gpu::kWarp *
                                               gpu::kHeadInputs * gpu::kHeadColumns)
                                       : count(4 * gpu::kHeadInputs * ((cols + 7) / 8 * 8))};
  launch(matrix.transpose ? "head_columns" : "head_rows", p, grid);
}

void CudaBackend::head_matmul(const HeadMatmulOp& op) {
  note_rows(op.x.rows);
  head_products(op.matrix, op.n_heads, op.x.rows, {floats(op.x), op.x.stride, op.x_head_stride},
                {floats(op.y), op.y.stride, op.y_head_stride});
}

}  // namespace moeflux::cuda
