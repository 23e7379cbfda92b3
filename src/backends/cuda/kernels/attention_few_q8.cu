// Attention of few tokens over a cache of q8.
#include "backends/cuda/kernels/attention_few.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(attend_few_q8_64, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::Q8, 64>(p);
}
GPU_KERNEL(attend_few_q8_128, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::Q8, 128>(p);
}
GPU_KERNEL(attend_few_q8_256, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::Q8, 256>(p);
}
GPU_KERNEL(attend_few_q8, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::Q8, 256, false>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
