// Products of few rows of activations: 2, 3, 5 and 6 bits and 4-bit floats, activations rounded to
// 16 bits.
#include "backends/cuda/kernels/matvec_rows.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_EARLY_KERNEL(matvec_other_1, MatvecParams, kVectorThreads) {
  run_matvec<OtherDigits, 1>(p, 1);
}
GPU_EARLY_KERNEL(matvec_other_4, MatvecParams, kVectorThreads) {
  run_matvec<OtherDigits, 4>(p, p.n_rows);
}
GPU_EARLY_KERNEL(gated_other_1, GatedParams, kVectorThreads) {
  run_gated<OtherDigits, 1>(p, 1);
}
GPU_EARLY_KERNEL(gated_other_4, GatedParams, kVectorThreads) {
  run_gated<OtherDigits, 4>(p, p.n_rows);
}
GPU_EARLY_KERNEL(gated_pairs_other, ExpertPairsParams, kVectorThreads) {
  run_gated_pairs<OtherDigits>(p);
}
GPU_EARLY_KERNEL(down_pairs_other, ExpertPairsParams, kVectorThreads) {
  run_down_pairs<OtherDigits>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
