// Attention over the cache.
#include <algorithm>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {
namespace {

constexpr std::int64_t kFewTokens = 16;  // of which keys are read in pieces
constexpr std::size_t kPartBytes = 64u << 20;
constexpr std::size_t kLatentBytes = 48u << 20;  // queries and results in the absorbed form
constexpr float kLog2E = 1.4426950408889634f;

// Queries, positions and results; what has a stride of its own is left to the caller.
gpu::AttentionParams params_of(const View& q, const View& positions, const View& out, float scale) {
  auto p = zeroed<gpu::AttentionParams>();
  p.q = floats(q);
  p.q_stride = q.stride;
  p.positions = ints(positions);
  p.out = floats(out);
  p.out_stride = out.stride;
  p.n = static_cast<std::int32_t>(q.rows);
  p.n_pieces = 1;
  p.scale = scale * kLog2E;
  return p;
}

// The same for tokens [first, first + n).
gpu::AttentionParams tokens_of(gpu::AttentionParams p, std::int64_t first, std::int64_t n) {
  p.q += first * p.q_stride;
  if (p.q_rest != nullptr) p.q_rest += first * p.rest_stride;
  if (p.gate != nullptr) p.gate += first * p.q_stride;
  p.positions += first;
  p.out += first * p.out_stride;
  p.n = static_cast<std::int32_t>(n);
  return p;
}

}  // namespace

void CudaBackend::attend(const gpu::AttentionParams& op) {
  if (op.n == 0) return;
  if (op.d_value > 1024)
    fail(Errc::Unsupported, "the GPU attends to values of at most 1024 numbers, not {}",
         op.d_value);
  const std::int64_t n_heads = std::int64_t{op.n_groups} * op.heads_per_group;
  std::int64_t at_once = op.n;
  gpu::AttentionParams p = op;
  if (op.n <= kFewTokens) {
    // Never by the number of tokens: a row's result is its own.
    const unsigned tiles = pieces(op.heads_per_group, gpu::kExactQueries) * count(op.n_groups);
    const unsigned wanted = pieces(2 * device_.n_processors(), tiles);
    p.n_pieces = static_cast<std::int32_t>(std::min<unsigned>(wanted, gpu::kMostPieces));
    const std::size_t of_token = static_cast<std::size_t>(p.n_pieces * n_heads) *
                                 (op.d_value * sizeof(float) + sizeof(gpu::SoftmaxSum));
    at_once = std::clamp<std::int64_t>(static_cast<std::int64_t>(kPartBytes / of_token), 1, op.n);
    const auto bytes = static_cast<std::size_t>(at_once) * of_token;
    p.parts = reinterpret_cast<float*>(scratch(Scratch::Partial, bytes));
    p.sums = reinterpret_cast<gpu::SoftmaxSum*>(p.parts + std::int64_t{p.n_pieces} * at_once *
                                                              n_heads * op.d_value);
  }
  const std::int64_t stride = op.d | 1;
  const std::int64_t of_keys = op.values_are_keys ? 0 : gpu::kKvTile * std::int64_t{op.d_value};
  const std::int64_t shared = (gpu::kExactQueries + gpu::kKvTile) * stride + of_keys;
  for (std::int64_t first = 0; first < op.n; first += at_once) {
    const gpu::AttentionParams part = tokens_of(p, first, std::min(at_once, op.n - first));
    const unsigned tiles = pieces(std::int64_t{part.n} * op.heads_per_group, gpu::kExactQueries);
    launch(op.d_value <= 256 ? "attend_exactly_256" : "attend_exactly_1024", part,
           {.x = tiles * count(op.n_groups),
            .y = count(p.n_pieces),
            .threads = gpu::kExactThreads,
            .shared_bytes = count(shared * static_cast<std::int64_t>(sizeof(float)))});
    if (p.parts != nullptr)
      launch("merge_attention", part,
             {.x = count(part.n), .y = count(n_heads), .threads = gpu::kMergeThreads});
  }
}

void CudaBackend::attention(const AttentionOp& op) {
  const AttentionSpec& s = *op.spec;
  MOEFLUX_ASSERT(op.k.shape.layout == KvLayout::Tiles && op.v.shape.layout == KvLayout::Rows);
  note_rows(op.q.rows);
  gpu::AttentionParams p = params_of(op.q, op.positions, op.out, s.scale);
  p.q_head = s.query_head();
  p.out_head = s.d_head;
  p.gate = s.has_output_gate ? p.q + s.d_head : nullptr;
  p.sinks = s.has_sinks ? floats(op.sinks) : nullptr;
  p.k = device_kv(op.k);
  p.v = device_kv(op.v);
  p.n_groups = s.n_kv_heads;
  p.heads_per_group = s.n_heads / s.n_kv_heads;
  p.d = p.d_first = p.d_value = s.d_head;
  p.window = s.window;
  attend(p);
}

void CudaBackend::latent_attention(const LatentAttentionOp& op) {
  const MlaSpec& s = *op.spec;
  MOEFLUX_ASSERT(op.kv.shape.layout == KvLayout::Rows && op.kv.shape.d == s.d_row());
  note_rows(op.q.rows);
  gpu::AttentionParams p = params_of(op.q_latent, op.positions, op.out, s.scale);
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
  attend(p);
}

// The absorbed form, for as many tokens at a time as there is memory for.
void CudaBackend::expanded_attention(const ExpandedAttentionOp& op) {
  const MlaSpec& s = *op.spec;
  const std::int64_t wide = std::int64_t{s.n_heads} * s.kv_rank;
  const std::size_t row_bytes = 2 * static_cast<std::size_t>(wide) * sizeof(float);
  const std::int64_t at_once =
      std::max<std::int64_t>(static_cast<std::int64_t>(kLatentBytes / row_bytes), 1);
  note_rows(op.q.rows);
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
    p.scale = s.scale * kLog2E;
    attend(p);
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
  const unsigned outputs = matrix.transpose ? pieces(matrix.weight.cols, gpu::kWarp)
                                            : pieces(matrix.rows, gpu::kHeadThreads / gpu::kWarp);
  launch(matrix.transpose ? "head_columns" : "head_rows", p,
         {.x = outputs, .y = count(n_heads), .z = inputs, .threads = gpu::kHeadThreads});
}

void CudaBackend::head_matmul(const HeadMatmulOp& op) {
  note_rows(op.x.rows);
  head_products(op.matrix, op.n_heads, op.x.rows, {floats(op.x), op.x.stride, op.x_head_stride},
                {floats(op.y), op.y.stride, op.y_head_stride});
}

}  // namespace moeflux::cuda
