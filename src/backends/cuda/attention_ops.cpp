// Attention over the cache.
#include <algorithm>
#include <optional>
#include <string_view>

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
constexpr std::int64_t kStaticShared = 8 << 10;  // and what the device takes for itself
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

namespace {

// A kernel that reads keys in pieces, or in one, and how it is launched.
struct Plan {
  std::string_view kernel;
  int queries = gpu::kExactQueries;  // of a tile
  int key_block = gpu::kExactKeyBlock;
  int blocks_per_processor = 2;  // that pays
  unsigned threads = gpu::kExactThreads;
  std::int64_t shared_bytes = 0;
};

Plan exact_plan(const gpu::AttentionParams& p) {
  if (p.d_value > 1024)
    fail(Errc::Unsupported, "the GPU attends to values of at most 1024 numbers, not {}", p.d_value);
  const std::int64_t stride = p.d | 1;
  const std::int64_t of_values = p.values_are_keys ? 0 : gpu::kKvTile * std::int64_t{p.d_value};
  Plan plan;
  plan.kernel = p.d_value <= 256 ? "attend_exactly_256" : "attend_exactly_1024";
  plan.shared_bytes = 4 * ((gpu::kExactQueries + gpu::kKvTile) * stride + of_values);
  return plan;
}

// Heads of few tokens on tensor cores; none where these do not take the shape.
std::optional<Plan> few_tokens_plan(const gpu::AttentionParams& p, std::int64_t most_shared) {
  using gpu::KvElement;
  const KvElement type = p.k.element;
  const int fits = type == KvElement::Q8 ? 64 : type == KvElement::F32 ? 32 : 16;
  if (p.values_are_keys || p.v.element != type || p.d != p.d_value || p.d % fits != 0 || p.d > 256)
    return {};
  constexpr std::string_view kNames[][3] = {
      {"attend_few_f32_64", "attend_few_f32_128", "attend_few_f32_256"},
      {"attend_few_f16_64", "attend_few_f16_128", "attend_few_f16_256"},
      {"attend_few_bf16_64", "attend_few_bf16_128", "attend_few_bf16_256"},
      {"attend_few_q8_64", "attend_few_q8_128", "attend_few_q8_256"}};
  const int width = p.d <= 64 ? 0 : p.d <= 128 ? 1 : 2;
  const gpu::FewTokensMemory memory = gpu::few_tokens_memory(type, p);
  Plan plan;
  plan.kernel = kNames[static_cast<int>(type)][width];
  plan.blocks_per_processor = p.d <= 128 ? 4 : 2;
  for (int warps = gpu::kFewTokensWarps; warps > 0; warps /= 2) {
    plan.key_block = warps * gpu::few_tokens_run(type);
    plan.threads = count(warps * gpu::kWarp);
    plan.shared_bytes =
        gpu::few_tokens_query_bytes(type, 64 << width) + std::int64_t{warps} * memory.warp_bytes;
    if (plan.shared_bytes <= most_shared) return plan;
  }
  return {};
}

}  // namespace

void CudaBackend::attend(const gpu::AttentionParams& op, std::int64_t capacity) {
  if (op.n == 0) return;
  const auto most_shared = static_cast<std::int64_t>(device_.most_shared_bytes()) - kStaticShared;
  const bool is_few = op.n <= kFewTokens;
  std::optional<Plan> found;
  if (precision_ != Precision::Exact && is_few) found = few_tokens_plan(op, most_shared);
  const Plan plan = found ? *found : exact_plan(op);
  if (plan.shared_bytes > most_shared)
    fail(Errc::Unsupported, "heads of {} and {} values are too large for the memory of this GPU",
         op.d, op.d_value);
  const std::int64_t n_heads = std::int64_t{op.n_groups} * op.heads_per_group;
  gpu::AttentionParams p = op;
  p.key_block = plan.key_block;
  std::int64_t at_once = op.n;
  if (is_few) {
    // By the model and the device alone: neither the number of tokens nor their positions count, so
    // a row's result is its own and a pass can be recorded.
    const std::int64_t tiles = std::int64_t{p.n_groups} * pieces(op.heads_per_group, plan.queries);
    const std::int64_t wanted =
        pieces(std::int64_t{plan.blocks_per_processor} * device_.n_processors(), tiles);
    std::int64_t most = std::min<std::int64_t>(gpu::kMostPieces, pieces(capacity, p.key_block));
    if (p.window > 0) most = std::min<std::int64_t>(most, p.window / p.key_block + 2);
    p.n_pieces = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(most, 1)));
    const std::size_t of_token = static_cast<std::size_t>(p.n_pieces * n_heads) *
                                 (op.d_value * sizeof(float) + sizeof(gpu::SoftmaxSum));
    at_once = std::clamp<std::int64_t>(static_cast<std::int64_t>(kPartBytes / of_token), 1, op.n);
    const auto bytes = static_cast<std::size_t>(at_once) * of_token;
    p.parts = reinterpret_cast<float*>(scratch(Scratch::Partial, bytes));
    p.sums = reinterpret_cast<gpu::SoftmaxSum*>(p.parts + std::int64_t{p.n_pieces} * at_once *
                                                              n_heads * op.d_value);
  }
  for (std::int64_t first = 0; first < op.n; first += at_once) {
    const gpu::AttentionParams part = tokens_of(p, first, std::min(at_once, op.n - first));
    const unsigned tiles = pieces(std::int64_t{part.n} * op.heads_per_group, plan.queries);
    launch(plan.kernel, part,
           {.x = tiles * count(op.n_groups),
            .y = count(p.n_pieces),
            .threads = plan.threads,
            .shared_bytes = count(plan.shared_bytes)});
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
  attend(p, op.k.shape.capacity);
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
  attend(p, op.kv.shape.capacity);
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
