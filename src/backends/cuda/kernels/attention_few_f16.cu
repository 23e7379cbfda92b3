// Attention of few tokens over a cache of f16.
#include "backends/cuda/kernels/attention_few.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(attend_few_f16_64, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::F16, 64>(p);
}
GPU_KERNEL(attend_few_f16_128, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::F16, 128>(p);
}
GPU_KERNEL(attend_few_f16_256, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::F16, 256>(p);
}
GPU_KERNEL(attend_few_f16, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::F16, 256, false>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
