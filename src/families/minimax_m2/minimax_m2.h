// MiniMax-M2: tensors named as Mixtral's, a sigmoid router, queries and keys normed as whole rows.
#pragma once

#include "families/family.h"

namespace moeflux {

extern const Family kMinimaxM2;

}  // namespace moeflux
