// Attention of many tokens over copies of caches.
#include "backends/cuda/kernels/attention_many.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(attend_staged_64, ManyTokensParams, 128) {
  attend_many<64, 64, 2, 64, true>(p);
}
GPU_KERNEL(attend_staged_128, ManyTokensParams, 128) {
  attend_many<128, 128, 2, 64, true>(p);
}
GPU_KERNEL(attend_staged_192, ManyTokensParams, 128) {
  attend_many<192, 128, 2, 64, true>(p);
}
GPU_KERNEL(attend_staged_256, ManyTokensParams, 256) {
  attend_many<256, 256, 1, 64, true>(p);
}
GPU_KERNEL(attend_staged_256_small, ManyTokensParams, 128) {
  attend_many<256, 256, 1, 32, true>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
