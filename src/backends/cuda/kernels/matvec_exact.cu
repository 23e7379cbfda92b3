// Products of few rows of activations: integers and 4-bit floats, activations as they are.
#include "backends/cuda/kernels/matvec_rows.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_EARLY_KERNEL(matvec_exact_1, MatvecParams, kVectorThreads) {
  run_matvec<ExactCodes, 1>(p, 1);
}
GPU_EARLY_KERNEL(matvec_exact_4, MatvecParams, kVectorThreads) {
  run_matvec<ExactCodes, 4>(p, p.n_rows);
}
GPU_EARLY_KERNEL(gated_exact_1, GatedParams, kVectorThreads) {
  run_gated<ExactCodes, 1>(p, 1);
}
GPU_EARLY_KERNEL(gated_exact_4, GatedParams, kVectorThreads) {
  run_gated<ExactCodes, 4>(p, p.n_rows);
}
GPU_EARLY_KERNEL(gated_pairs_exact, ExpertPairsParams, kVectorThreads) {
  run_gated_pairs<ExactCodes>(p);
}
GPU_EARLY_KERNEL(down_pairs_exact, ExpertPairsParams, kVectorThreads) {
  run_down_pairs<ExactCodes>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
