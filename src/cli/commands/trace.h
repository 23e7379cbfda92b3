// moeflux trace: record which experts a model asks for, make up such a recording, and replay one
// against caches of any size and policy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/conversation.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/options/sampling_options.h"

namespace moeflux::cli {

struct TraceOptions {
  std::optional<std::string> output;
  bool json = false;
  GeneralOptions general;

  // record
  ModelOptions model;
  ConversationOptions conversation;
  SamplingOptions sampling;
  std::optional<std::string> prompt, file, prompts, texts;
  std::int64_t max_tokens = 128;
  std::int64_t chunk = 0;
  bool raw = false;

  // replay
  std::string policies = "all";
  std::string sizes = "5%,10%,15%,20%,25%,30%,40%,50%,60%,75%,100%";
  std::optional<std::string> plot, bandwidth;
  std::string skip = "20%";

  // synth
  std::string shape = "40x256x8";
  std::int64_t n_tokens = 1000;
  std::int64_t topic = 250;
  double skew = 1, locality = 1;
  std::string record_size = "1728K";
};

// Gets the arguments after "replay", and returns the exit code.
int replay_trace(const TraceOptions& options, const std::vector<std::string>& arguments);

}  // namespace moeflux::cli
