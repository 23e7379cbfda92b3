// GLM-4 without experts: adjacent pairs rotate, and what a block adds is normed.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kGlm4;

}  // namespace moeflux
