#include "engine/measure/forecast.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/session.h"

namespace moeflux {
namespace {

constexpr double kFittedFrom = 0.06;  // the least share of experts the curves were fitted to
constexpr int kManyExperts = 128;
constexpr double kMixedTopicsCost = 0.125;

double seconds(double bytes, double bytes_per_second) {
  if (bytes <= 0) return 0;
  return bytes_per_second > 0 ? bytes / bytes_per_second : std::numeric_limits<double>::infinity();
}

double per_second(double time) {
  return time > 0 ? 1 / time : std::numeric_limits<double>::infinity();
}

double share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return 1;
  return std::min(1.0, static_cast<double>(part) / static_cast<double>(whole));
}

double curve(bool sigmoid_router, double f) {
  return sigmoid_router ? 1 - 0.75 * std::exp(-4 * f) : 1 - 0.67 * std::exp(-5.2 * f);
}

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

double TokenTime::tokens_per_second() const {
  return per_second(std::max(disk, memory));
}
double TokenTime::serial_tokens_per_second() const {
  return per_second(disk + memory);
}

TokenTime token_time(const TokenBytes& bytes, double hit_rate, const MachineSpeed& speed) {
  const double missed = (1 - std::clamp(hit_rate, 0.0, 1.0)) * bytes.experts;
  const double kernels =
      speed.kernels > 0 ? seconds(bytes.dense + bytes.experts, speed.kernels) : 0;
  return {.disk = seconds(missed, speed.disk),
          .memory = std::max(seconds(bytes.total() + missed, speed.memory), kernels)};
}

double uniform_hit_rate(const ExpertCounts& experts) {
  if (experts.cached >= experts.total) return 1;
  if (experts.cached < experts.per_token) return 0;
  return share(experts.cached, experts.total);
}

double typical_hit_rate(const ExpertCounts& experts) {
  const double uniform = uniform_hit_rate(experts);
  if (uniform == 0 || uniform == 1) return uniform;
  const double f = share(experts.cached, experts.total);
  const double one_token = share(experts.per_token, experts.total);
  double rate = curve(experts.sigmoid_router, std::max(f, kFittedFrom));
  if (f < kFittedFrom) rate *= (f - one_token) / (kFittedFrom - one_token);
  if (experts.per_layer < kManyExperts) rate = (rate + uniform) / 2;
  return std::max(rate, uniform);
}

double mixed_hit_rate(const ExpertCounts& experts) {
  const double typical = typical_hit_rate(experts);
  if (experts.cached >= experts.total) return typical;
  return std::max(typical - kMixedTopicsCost, uniform_hit_rate(experts));
}

double expected_experts(int n_experts, int top_k, double n_tokens) {
  if (n_experts <= 0) return 0;
  const double unused = 1 - std::min(1.0, static_cast<double>(top_k) / n_experts);
  return n_experts * (1 - std::pow(unused, n_tokens));
}

double prefill_disk_tokens_per_second(const PrefillSweep& sweep, double disk_bytes_per_second) {
  if (sweep.n_experts <= 0 || sweep.chunk <= 0) return std::numeric_limits<double>::infinity();
  const double used = expected_experts(sweep.n_experts, sweep.top_k, sweep.chunk) / sweep.n_experts;
  const double missing = 1 - std::clamp(sweep.cached_share, 0.0, 1.0);
  const double time = seconds(sweep.expert_bytes_total * used * missing, disk_bytes_per_second);
  return time > 0 ? sweep.chunk / time : std::numeric_limits<double>::infinity();
}

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
