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
  constexpr std::string_view kNames[][4] = {
      {"attend_few_f32_64", "attend_few_f32_128", "attend_few_f32_256", "attend_few_f32"},
      {"attend_few_f16_64", "attend_few_f16_128", "attend_few_f16_256", "attend_few_f16"},
      {"attend_few_bf16_64", "attend_few_bf16_128", "attend_few_bf16_256", "attend_few_bf16"},
      {"attend_few_q8_64", "attend_few_q8_128", "attend_few_q8_256", "attend_few_q8"}};
  const int width = p.d == 64 ? 0 : p.d == 128 ? 1 : p.d == 256 ? 2 : 3;
  const int most_d = width == 3 ? 256 : p.d;
  const gpu::FewTokensMemory memory = gpu::few_tokens_memory(type, p);
  Plan plan;
  plan.kernel = kNames[static_cast<int>(type)][width];
  plan.blocks_per_processor = p.d <= 128 ? 4 : 2;
  for (int warps = gpu::kFewTokensWarps; warps > 0; warps /= 2) {
    plan.key_block = warps * gpu::few_tokens_run(type);
    plan.threads = count(warps * gpu::kWarp);
    plan.shared_bytes =
        gpu::few_tokens_query_bytes(type, most_d) + std::int64_t{warps} * memory.warp_bytes;
    if (plan.shared_bytes > most_shared) continue;
    plan.blocks_per_processor =
        std::min(plan.blocks_per_processor, static_cast<int>(most_shared / plan.shared_bytes));
    return plan;
  }
  return {};
}

}  // namespace

// Attention of many tokens on tensor cores.
struct ManyPlan {
  std::string_view kernel;
  int d, values;  // of keys and values as the kernel takes them
  bool is_staged;
  int queries;  // of a tile
  int keys;     // at a time
  int blocks_per_processor;

  unsigned threads() const { return count(gpu::many_tokens_threads(d, keys)); }
  std::int64_t shared_bytes() const {
    return 2 * (std::int64_t{keys} * (d + values) + std::int64_t{queries} * (d + 8));
  }
};

namespace {

constexpr ManyPlan kManyPlans[] = {
    {"attend_many_64", 64, 64, false, 128, 64, 2},
    {"attend_many_128", 128, 128, false, 128, 64, 2},
    {"attend_many_256", 256, 256, false, 128, 64, 1},
    {"attend_many_256_small", 256, 256, false, 64, 32, 1},
    {"attend_staged_64", 64, 64, true, 128, 64, 2},
    {"attend_staged_128", 128, 128, true, 128, 64, 2},
    {"attend_staged_192", 192, 128, true, 128, 64, 2},
    {"attend_staged_256", 256, 256, true, 128, 64, 1},
    {"attend_staged_256_small", 256, 256, true, 64, 32, 1},
};

// Null: none takes them.
const ManyPlan* many_tokens_plan(const gpu::AttentionParams& p, std::int64_t most_shared) {
  const bool are_halves = p.k.element == gpu::KvElement::F16 && p.v.element == gpu::KvElement::F16;
  for (const ManyPlan& plan : kManyPlans) {
    const bool fits = plan.is_staged ? p.d <= plan.d && p.d_value <= plan.values
                                     : p.k.data != nullptr && are_halves && p.d == plan.d &&
                                           p.d_value == plan.values;
    if (fits && plan.shared_bytes() <= most_shared) return &plan;
  }
  return nullptr;
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

namespace {

// Latents on tensor cores; none where they are too large.
std::optional<Plan> latent_plan(const gpu::AttentionParams& p, std::int64_t most_shared) {
  if (!p.values_are_keys || p.d > gpu::kUsualLatent || p.d_value > gpu::kUsualRank) return {};
  const bool is_usual = p.d == gpu::kUsualLatent && p.d_value == gpu::kUsualRank;
  for (const int rows : {4, 1}) {
    // Never by the number of few tokens.
    if (rows == 4 && p.heads_per_group <= 32 && p.n <= kFewTokens) continue;
    Plan plan;
    plan.kernel = rows == 4 ? (is_usual ? "attend_latent_64_512" : "attend_latent_64")
                            : (is_usual ? "attend_latent_16_512" : "attend_latent_16");
    plan.queries = rows * 16;
    plan.key_block = gpu::latent_keys(rows);
    plan.blocks_per_processor = rows == 4 ? 1 : 2;
    plan.threads = gpu::kLatentThreads;
    plan.shared_bytes = gpu::latent_shared_bytes(rows, p.k);
    if (plan.shared_bytes > most_shared) continue;
    plan.blocks_per_processor =
        std::min(plan.blocks_per_processor, static_cast<int>(most_shared / plan.shared_bytes));
    return plan;
  }
  return {};
}

}  // namespace

void CudaBackend::attend(const gpu::AttentionParams& op, std::int64_t capacity) {
  if (op.n == 0) return;
  const auto most_shared = static_cast<std::int64_t>(device_.most_shared_bytes()) - kStaticShared;
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
  std::optional<Plan> found;
  if (precision_ != Precision::Exact) {
    if (op.values_are_keys) {
      found = latent_plan(op, most_shared);
    } else if (is_few) {
      found = few_tokens_plan(op, most_shared);
    }
  }
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
             {.x = count(part.n),
              .y = count(n_heads),
              .threads = merge_threads(op.d_value, p.n_pieces)});
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

bool CudaBackend::multiply_out(const ExpandedAttentionOp& op) {
  const MlaSpec& s = *op.spec;
  const auto most_shared = static_cast<std::int64_t>(device_.most_shared_bytes()) - kStaticShared;
  gpu::AttentionParams p = params_of(op.q, op.positions, op.out, s.scale);
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
