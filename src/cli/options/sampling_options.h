// How tokens are drawn: the model's own defaults, changed by what the user gives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "engine/engine.h"
#include "engine/generate.h"

namespace moeflux::cli {

struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p, typical_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> repeat_penalty, presence_penalty, frequency_penalty;
  std::vector<std::string> logit_bias;  // "ID=VALUE"
  std::optional<std::int64_t> seed;     // negative or none: a new one
};

void add_sampling_options(Command& command, SamplingOptions& options);

// Replaces what the user gave. Throws UsageError for values outside of their range.
void apply_sampling(const SamplingOptions& options, SamplingParams& params);

// The model's defaults with that, and a seed. Throws Error(BadInput) when the defaults are wrong.
SamplingParams resolve_sampling(const SamplingOptions& options, const ModelSource& source);

}  // namespace moeflux::cli
