// Attention over the cache.
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {

void CudaBackend::attention(const AttentionOp&) {
  fail(Errc::Unsupported, "attention");
}
void CudaBackend::latent_attention(const LatentAttentionOp&) {
  fail(Errc::Unsupported, "latent attention");
}
void CudaBackend::expanded_attention(const ExpandedAttentionOp&) {
  fail(Errc::Unsupported, "expanded attention");
}
void CudaBackend::head_matmul(const HeadMatmulOp&) {
  fail(Errc::Unsupported, "head products");
}

}  // namespace moeflux::cuda
