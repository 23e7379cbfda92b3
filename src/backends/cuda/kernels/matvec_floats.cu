// Products of few rows of activations: floats of 8, 16 and 32 bits.
#include "backends/cuda/kernels/matvec_rows.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_EARLY_KERNEL(matvec_floats_1, MatvecParams, kVectorThreads) {
  run_matvec<Floats, 1>(p, 1);
}
GPU_EARLY_KERNEL(matvec_floats_4, MatvecParams, kVectorThreads) {
  run_matvec<Floats, 4>(p, p.n_rows);
}
GPU_EARLY_KERNEL(gated_floats_1, GatedParams, kVectorThreads) {
  run_gated<Floats, 1>(p, 1);
}
GPU_EARLY_KERNEL(gated_floats_4, GatedParams, kVectorThreads) {
  run_gated<Floats, 4>(p, p.n_rows);
}
GPU_EARLY_KERNEL(gated_pairs_floats, ExpertPairsParams, kVectorThreads) {
  run_gated_pairs<Floats>(p);
}
GPU_EARLY_KERNEL(down_pairs_floats, ExpertPairsParams, kVectorThreads) {
  run_down_pairs<Floats>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
