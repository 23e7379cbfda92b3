#include "backends/cuda/attention_plans.h"

#include <algorithm>

#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {

AttentionPlan exact_plan(const gpu::AttentionParams& p) {
  if (p.d_value > 1024)
    fail(Errc::Unsupported, "the GPU attends to values of at most 1024 numbers, not {}", p.d_value);
  const std::int64_t stride = p.d | 1;
  const std::int64_t of_values = p.values_are_keys ? 0 : gpu::kKvTile * std::int64_t{p.d_value};
  AttentionPlan plan;
  plan.kernel = p.d_value <= 256 ? "attend_exactly_256" : "attend_exactly_1024";
  plan.shared_bytes = 4 * ((gpu::kExactQueries + gpu::kKvTile) * stride + of_values);
  return plan;
}
// Heads of few tokens on tensor cores; none where these do not take the shape.
std::optional<AttentionPlan> few_tokens_plan(const gpu::AttentionParams& p,
                                             std::int64_t most_shared) {
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
  AttentionPlan plan;
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

// Latents on tensor cores; none where they are too large.
std::optional<AttentionPlan> latent_plan(const gpu::AttentionParams& p, std::int64_t most_shared) {
  if (!p.values_are_keys || p.d > gpu::kUsualLatent || p.d_value > gpu::kUsualRank) return {};
  const bool is_usual = p.d == gpu::kUsualLatent && p.d_value == gpu::kUsualRank;
  for (const int rows : {4, 1}) {
    // Never by the number of few tokens.
    if (rows == 4 && p.heads_per_group <= 32 && p.n <= kFewTokens) continue;
    AttentionPlan plan;
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

}  // namespace

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

gpu::AttentionParams attention_params(const View& q, const View& positions, const View& out,
                                      float scale) {
  auto p = zeroed<gpu::AttentionParams>();
  p.q = floats(q);
  p.q_stride = q.stride;
  p.positions = ints(positions);
  p.out = floats(out);
  p.out_stride = out.stride;
  p.n = static_cast<std::int32_t>(q.rows);
  p.n_pieces = 1;
  p.scale = scale * 1.4426950408889634f;
  return p;
}
}  // namespace moeflux::cuda
