// What a forward pass takes beside weights and sessions, measured by running it on a backend that
// only counts.
#pragma once

#include <cstdint>

#include "backends/backend.h"
#include "model/model_config.h"

namespace moeflux {

struct PassMemory {
  std::uint64_t workspace_bytes = 0;
  WidestOps widest;  // what the backend takes memory of its own for
};

// Of passes of up to max_tokens rows; mixer_slice: of Forward::Parts.
PassMemory measure_pass(const ModelConfig& config, std::int64_t max_tokens,
                        std::int64_t mixer_slice);

}  // namespace moeflux
