// What a memory plan is worth: the limit model applied to a model, a plan and the speed of a
// machine.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/measure/limit_model.h"
#include "engine/plan.h"

namespace moeflux {

// How far into a conversation: attention reads more with every token.
inline constexpr std::int64_t kForecastLength = 2048;

struct HitRates {
  double uniform = 0;
  double typical = 0;
  double mixed = 0;  // topics
};

struct Forecast {
  HitRates hit_rates;
  TokenBytes bytes;                 // per token, kForecastLength tokens into a conversation
  double disk_bytes_per_token = 0;  // at the typical hit rate
  TokenTime uniform, typical, mixed;
  double prefill_tokens_per_second = 0;  // as far as the drive is concerned; infinite: it is not
};

Forecast forecast(const ModelConfig& config, const ModelSizes& sizes, const PlanOptions& options,
                  const MachineSpeed& speed);

// The least memory with which a typical conversation waits for memory and no longer for the drive,
// found to a thousandth of the experts; all experts when only that will do.
std::uint64_t recommended_bytes(const ModelConfig& config, const ModelSizes& sizes,
                                PlanOptions options, const MachineSpeed& speed);

// The same options with a ceiling that holds this share of all experts, or the floor if that is
// more.
PlanOptions with_cached_share(const ModelConfig& config, const ModelSizes& sizes,
                              PlanOptions options, double share);

}  // namespace moeflux
