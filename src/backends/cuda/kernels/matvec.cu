// Products of few rows of activations, at the speed of memory.
#include "backends/cuda/kernels/weights.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {}  // namespace moeflux::gpu
GPU_CODE_END
