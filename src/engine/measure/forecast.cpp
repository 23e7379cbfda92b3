#include "engine/measure/forecast.h"

#include <algorithm>

#include "runtime/session.h"

namespace moeflux {
namespace {

ExpertCounts count_experts(const ModelSizes& sizes, const MemoryPlan& plan) {
  ExpertCounts counts;
  counts.total = plan.max_slots;
  counts.cached = plan.n_slots;
  counts.per_token = sizes.experts_per_token();
  for (const BankSize& bank : sizes.banks) {
    counts.per_layer = std::max(counts.per_layer, bank.n_experts);
    counts.sigmoid_router = counts.sigmoid_router || bank.sigmoid_router;
  }
  return counts;
}

}  // namespace

Forecast forecast(const ModelConfig& config, const ModelSizes& sizes, const PlanOptions& options,
                  const MachineSpeed& speed) {
  const MemoryPlan plan = plan_memory(config, sizes, options);
  const std::int64_t length = std::min(options.context_length, kForecastLength);
  const ExpertCounts counts = count_experts(sizes, plan);
  Forecast result;
  result.hit_rates = {uniform_hit_rate(counts), typical_hit_rate(counts), mixed_hit_rate(counts)};
  result.bytes = {
      .dense = static_cast<double>(sizes.dense_bytes_per_token),
      .experts = static_cast<double>(sizes.expert_bytes_per_token()),
      .context = static_cast<double>(Session::bytes_needed(config, {length, options.kv_type}))};
  result.disk_bytes_per_token = (1 - result.hit_rates.typical) * result.bytes.experts;
  result.uniform = token_time(result.bytes, result.hit_rates.uniform, speed);
  result.typical = token_time(result.bytes, result.hit_rates.typical, speed);
  result.mixed = token_time(result.bytes, result.hit_rates.mixed, speed);
  const double cached = counts.total == 0
                            ? 1.0
                            : static_cast<double>(plan.n_slots) / static_cast<double>(counts.total);
  result.prefill_tokens_per_second = prefill_disk_tokens_per_second(
      {.expert_bytes_total = static_cast<double>(sizes.expert_bytes_total),
       .n_experts = counts.per_layer,
       .top_k = sizes.top_k(),
       .cached_share = cached,
       .chunk = static_cast<double>(plan.max_batch)},
      speed.disk);
  return result;
}

PlanOptions with_cached_share(const ModelConfig& config, const ModelSizes& sizes,
                              PlanOptions options, double share) {
  options.memory_bytes = 0;
  MemoryPlan plan = plan_memory(config, sizes, options);
  const auto share_slots =
      static_cast<std::uint64_t>(share * static_cast<double>(plan.max_slots) + 0.5);
  const std::uint64_t slots = std::max(share_slots, plan.min_slots);
  // With more memory the plan may choose longer passes, and then needs more again for the slots.
  while (!plan.fits() || plan.n_slots < slots) {
    options.memory_bytes = plan.fixed_bytes() + slots * plan.slot_bytes;
    plan = plan_memory(config, sizes, options);
  }
  return options;
}

std::uint64_t recommended_bytes(const ModelConfig& config, const ModelSizes& sizes,
                                PlanOptions options, const MachineSpeed& speed) {
  constexpr int kSteps = 1000;
  const auto ceiling_at = [&](int step) {
    return with_cached_share(config, sizes, options, static_cast<double>(step) / kSteps);
  };
  // Hit rates rise with the cache, so that the first step that is fast enough can be bisected.
  int too_slow = -1, enough = kSteps;
  while (enough - too_slow > 1) {
    const int middle = (too_slow + enough) / 2;
    const PlanOptions tried = ceiling_at(middle);
    const Forecast result = forecast(config, sizes, tried, speed);
    (result.typical.disk_bound() ? too_slow : enough) = middle;
  }
  return ceiling_at(enough).memory_bytes;
}

}  // namespace moeflux
