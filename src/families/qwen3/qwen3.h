// Qwen3 without experts: normed heads, a window in the upper layers.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kQwen3;

}  // namespace moeflux
