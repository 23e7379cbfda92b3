// How many floats of scratch a forward pass of n tokens takes. Mirrors what forward.cpp, mixers/
// and moe.cpp take; a workspace that is too small is an assertion, not a corruption.
#pragma once

#include <cstdint>

#include "backends/backend.h"
#include "model/model_config.h"

namespace moeflux {

// Tokens of a long pass that a mixer takes at a time. Latent attention multiplies keys and values
// out for each slice: the longer, the less often.
inline constexpr std::int64_t kMixerSlice = 512;
inline constexpr std::int64_t kLatentSlice = 1024;
inline std::int64_t mixer_slice(const MixerSpec& mixer) {
  return std::holds_alternative<MlaSpec>(mixer) ? kLatentSlice : kMixerSlice;
}
// Of these, what the absorbed form of latent attention takes at a time.
inline constexpr std::int64_t kAbsorbedRows = 128;

std::uint64_t workspace_floats(const ModelConfig& config, std::int64_t n_tokens);
// What such a pass asks of a backend.
WidestOps widest_ops(const ModelConfig& config, std::int64_t n_tokens);

}  // namespace moeflux
