// Products of few rows of activations: integers and 4-bit floats, activations as they are.
#include "backends/cuda/kernels/matvec_rows.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_EARLY_KERNEL(matvec_exact_1, MatvecParams, kVectorThreads) {
  run_matvec<ExactCodes, 1, 2, 2>(p, 1);
}
GPU_EARLY_KERNEL(matvec_exact_4, MatvecParams, kVectorThreads) {
  run_matvec<ExactCodes, 4, 2, 1>(p, p.n_rows);
}
GPU_EARLY_KERNEL(gated_exact_1, GatedParams, kVectorThreads) {
  run_gated<ExactCodes, 1, 1, 2>(p, 1);
}
GPU_EARLY_KERNEL(gated_exact_4, GatedParams, kVectorThreads) {
  run_gated<ExactCodes, 4, 1, 1>(p, p.n_rows);
}
GPU_EARLY_KERNEL(gated_pairs_exact, ExpertPairsParams, kVectorThreads) {
  run_gated_pairs<ExactCodes, 1, 2>(p);
}
GPU_EARLY_KERNEL(down_pairs_exact, ExpertPairsParams, kVectorThreads) {
  run_down_pairs<ExactCodes, 2, 2>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
