// Qwen3.5 / Qwen3.6: gated attention every few layers, gated delta rule in the others, mixture of
// experts (or, in the small models, a plain feed-forward) everywhere, optional
// multi-token-prediction head.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kQwen35Moe;

}  // namespace moeflux
