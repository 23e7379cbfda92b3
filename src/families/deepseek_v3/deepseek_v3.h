// DeepSeek-V3 and its descendants (R1, Cogito-V2, Kimi-K2): multi-head latent attention, dense
// first layers, experts routed by sigmoid scores with a correction bias and expert groups.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kDeepseekV3;

}  // namespace moeflux
