#include "quant/block_grids.h"

namespace moeflux {}  // namespace moeflux
