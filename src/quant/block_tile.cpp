#include "quant/block_tile.h"

namespace moeflux {}  // namespace moeflux
