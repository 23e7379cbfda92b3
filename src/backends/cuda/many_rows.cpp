// Products of many rows of activations.
#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/launch.h"
#include "backends/cuda/operands.h"
#include "base/error.h"

namespace moeflux::cuda {

void CudaBackend::many_rows(const MatmulOp&) {
  fail(Errc::Unsupported, "products of many rows");
}
void CudaBackend::many_rows(const FfnOp&) {
  fail(Errc::Unsupported, "feed-forwards of many rows");
}
void CudaBackend::experts_of_many_rows(const ExpertsOp&, const std::uint64_t*) {
  fail(Errc::Unsupported, "experts of many rows");
}

}  // namespace moeflux::cuda
