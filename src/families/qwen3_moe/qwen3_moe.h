// Qwen3 with experts (30B-A3B, 235B-A22B, Coder): normed heads, some layers may be dense.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kQwen3Moe;

}  // namespace moeflux
