// OLMoE: queries and keys normed over all heads together; weights of experts that do not sum to 1.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kOlmoe;

}  // namespace moeflux
