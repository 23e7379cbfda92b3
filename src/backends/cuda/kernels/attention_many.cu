// Attention of many tokens over caches of f16.
#include "backends/cuda/kernels/attention_many.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(attend_many_64, ManyTokensParams, 128) {
  attend_many<64, 64, 2, 64, false>(p);
}
GPU_KERNEL(attend_many_128, ManyTokensParams, 128) {
  attend_many<128, 128, 2, 64, false>(p);
}
GPU_KERNEL(attend_many_256, ManyTokensParams, 256) {
  attend_many<256, 256, 1, 64, false>(p);
}
GPU_KERNEL(attend_many_256_small, ManyTokensParams, 128) {
  attend_many<256, 256, 1, 32, false>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
