// Attention of few tokens over a cache of f32.
#include "backends/cuda/kernels/attention_few.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(attend_few_f32_64, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::F32, 64>(p);
}
GPU_KERNEL(attend_few_f32_128, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::F32, 128>(p);
}
GPU_KERNEL(attend_few_f32_256, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::F32, 256>(p);
}
GPU_KERNEL(attend_few_f32, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::F32, 256, false>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
