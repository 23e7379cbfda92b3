// Attention over the cache.
#include <algorithm>

#include "backends/cuda/attention_plans.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {
namespace {

constexpr std::size_t kPartBytes = 64u << 20;

// A thread for four columns of each of a few parts.
unsigned merge_threads(int d_value, int n_pieces) {
  return threads_for(std::int64_t{(d_value + 3) / 4} * std::min(n_pieces, 8), gpu::kMergeThreads);
}

// Parameters for tokens [first, first + n).
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

void CudaBackend::attend_many(const ManyPlan& plan, const gpu::AttentionParams& op,
                              std::int64_t capacity, const MakeCopies& make_copies) {
  auto all = zeroed<gpu::ManyTokensParams>();
  gpu::AttentionParams& p = all.attention;
  p = op;
  p.key_block = plan.keys;
  const std::int64_t n_heads = std::int64_t{op.n_groups} * op.heads_per_group;
  const std::int64_t whole =
      pieces(capacity, gpu::kManyTokensKeys) * std::int64_t{gpu::kManyTokensKeys};
  const unsigned blocks =
      pieces(std::int64_t{op.n} * op.heads_per_group, plan.queries) * count(op.n_groups);

  // Copies of as many positions as there is memory for.
  std::int64_t segment = whole;
  if (plan.is_staged) {
    const std::int64_t block_bytes =
        op.n_groups * (std::int64_t{2 * gpu::kManyTokensKeys} * (plan.d + plan.values) + 32);
    const auto most = static_cast<std::int64_t>(copies_bytes_) / block_bytes;
    segment = std::min(whole, std::max<std::int64_t>(most, 1) * gpu::kManyTokensKeys);
  }
  if (segment == whole) {  // few blocks share the keys
    const std::int64_t part_bytes = op.n * n_heads * (4 * std::int64_t{op.d_value} + 8);
    const std::int64_t idle =
        std::int64_t{plan.blocks_per_processor} * device_.n_processors() / blocks;
    const std::int64_t most = std::min({idle, static_cast<std::int64_t>(kPartBytes) / part_bytes,
                                        whole / gpu::kManyTokensKeys, std::int64_t{16}});
    p.n_pieces = static_cast<std::int32_t>(std::max<std::int64_t>(most, 1));
  }
  const std::int64_t n_sums = p.n_pieces * std::int64_t{op.n} * n_heads;
  const std::int64_t part_values = p.n_pieces > 1 ? n_sums * op.d_value : 0;
  const std::int64_t n_tiles = segment / gpu::kKvTile * op.n_groups;
  Copies copies{.d = plan.d, .values = plan.values, .segment = segment};
  const std::int64_t key_halves = copies.halves(plan.d) * op.n_groups;
  const std::int64_t value_halves = copies.halves(plan.values) * op.n_groups;
  const std::int64_t copies_at = pieces(8 * n_sums + 4 * part_values, 256) * std::int64_t{256};
  const std::int64_t copy_bytes =
      plan.is_staged ? 2 * (key_halves + value_halves) + 8 * n_tiles : 0;
  const CUdeviceptr memory =
      scratch(Scratch::Partial, static_cast<std::size_t>(copies_at + copy_bytes));
  p.sums = reinterpret_cast<gpu::SoftmaxSum*>(memory);
  p.parts = part_values > 0
                ? reinterpret_cast<float*>(memory + static_cast<CUdeviceptr>(8 * n_sums))
                : nullptr;
  if (plan.is_staged) {
    copies.keys = reinterpret_cast<std::uint16_t*>(memory + static_cast<CUdeviceptr>(copies_at));
    copies.value_rows = copies.keys + key_halves;
    copies.key_factors = reinterpret_cast<float*>(copies.value_rows + value_halves);
    copies.value_factors = copies.key_factors + n_tiles;
    const auto place = [&](gpu::DeviceKv& kv, std::uint16_t* at, int d) {
      kv = zeroed<gpu::DeviceKv>();
      kv.data = reinterpret_cast<unsigned char*>(at);
      kv.element = gpu::KvElement::F16;
      kv.head_bytes = 2 * copies.halves(d);
      kv.row_bytes = 2 * d;
      kv.d = d;
    };
    place(p.k, copies.keys, plan.d);
    place(p.v, copies.value_rows, plan.values);
  }

  for (std::int64_t begin = 0; begin < whole; begin += segment) {
    copies.begin = all.begin = static_cast<std::int32_t>(begin);
    copies.end = all.end = static_cast<std::int32_t>(std::min(begin + segment, whole));
    if (plan.is_staged && make_copies(copies)) {
      all.key_factors = copies.key_factors;
      all.value_factors = copies.value_factors;
      all.factors_head = segment / gpu::kKvTile;
    }
    launch(plan.kernel, all,
           {.x = blocks,
            .y = count(p.n_pieces),
            .threads = plan.threads(),
            .shared_bytes = count(plan.shared_bytes())});
  }
  if (p.parts != nullptr)
    launch(
        "merge_attention", p,
        {.x = count(op.n), .y = count(n_heads), .threads = merge_threads(op.d_value, p.n_pieces)});
}

void CudaBackend::stage_kv(const gpu::DeviceKv& from, const gpu::AttentionParams& op, int n_heads,
                           const Rows16& to, std::int32_t begin, std::int32_t end) {
  auto stage = zeroed<gpu::StageParams>();
  stage.from = from;
  stage.to = to.data;
  stage.to_head = to.head_stride;
  stage.factors = to.factors;
  stage.factors_head = to.factors_head;
  stage.d = to.width;
  stage.positions = op.positions;
  stage.n = op.n;
  stage.window = op.window;
  stage.begin = begin;
  stage.end = end;
  launch("stage_kv", stage,
         {.x = pieces(end - begin, gpu::kKvTile),
          .y = count(n_heads),
          .threads = gpu::kStageThreads,
          .shared_bytes = count(gpu::kKvTile * 4 * (from.d | 1))});
}
void CudaBackend::attend(const gpu::AttentionParams& op, std::int64_t capacity) {
  if (op.n == 0) return;
  const std::int64_t most_shared = shared_bytes_of_block();
  if (precision_ != Precision::Exact && op.n > kFewTokens && !op.values_are_keys) {
    if (const ManyPlan* plan = many_tokens_plan(op, most_shared)) {
      return attend_many(*plan, op, capacity, [&](const Copies& copies) {
        const auto stage = [&](const gpu::DeviceKv& from, std::uint16_t* to, float* factors,
                               int width) {
          stage_kv(from, op, op.n_groups,
                   {to, factors, copies.halves(width), copies.segment / gpu::kKvTile, width},
                   copies.begin, copies.end);
        };
        stage(op.k, copies.keys, copies.key_factors, copies.d);
        stage(op.v, copies.value_rows, copies.value_factors, copies.values);
        return true;
      });
    }
  }
  const bool is_few = op.n <= kFewTokens;
  std::optional<AttentionPlan> found;
  if (precision_ != Precision::Exact) {
    if (op.values_are_keys) {
      found = latent_plan(op, most_shared);
    } else if (is_few) {
      found = few_tokens_plan(op, most_shared);
    }
  }
  const AttentionPlan plan = found ? *found : exact_plan(op);
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
             {.x = count(part.n),
              .y = count(n_heads),
              .threads = merge_threads(op.d_value, p.n_pieces)});
  }
}

void CudaBackend::attention(const AttentionOp& op) {
  const AttentionSpec& s = *op.spec;
  MOEFLUX_ASSERT(op.k.shape.layout == KvLayout::Tiles && op.v.shape.layout == KvLayout::Rows);
  note_rows(op.q.rows);
  gpu::AttentionParams p = attention_params(op.q, op.positions, op.out, s.scale);
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

}  // namespace moeflux::cuda
