// Qwen3-Next (80B-A3B, Coder-Next): the blocks of Qwen3.5 with the projections of the gated delta
// rule fused, and dense layers where the config wants them.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kQwen3Next;

}  // namespace moeflux
