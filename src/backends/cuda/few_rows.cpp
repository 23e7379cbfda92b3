// Products of few rows of activations.
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {

void CudaBackend::matmuls(std::span<const MatmulOp> ops) {
  static_cast<void>(ops);
  fail(Errc::Unsupported, "products");
}
void CudaBackend::ffns(std::span<const FfnOp> ops) {
  static_cast<void>(ops);
  fail(Errc::Unsupported, "feed-forwards");
}
void CudaBackend::experts(const ExpertsOp& op) {
  static_cast<void>(op);
  fail(Errc::Unsupported, "experts");
}

}  // namespace moeflux::cuda
