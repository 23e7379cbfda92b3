// Attention of few tokens over a cache of bf16.
#include "backends/cuda/kernels/attention_few.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(attend_few_bf16_64, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::BF16, 64>(p);
}
GPU_KERNEL(attend_few_bf16_128, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::BF16, 128>(p);
}
GPU_KERNEL(attend_few_bf16_256, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::BF16, 256>(p);
}
GPU_KERNEL(attend_few_bf16, AttentionParams, kFewTokensThreads) {
  attend_few<KvElement::BF16, 256, false>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
