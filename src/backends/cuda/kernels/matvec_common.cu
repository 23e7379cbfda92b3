// Products of few rows of activations: 4 and 8 bits, activations rounded to 16 bits.
#include "backends/cuda/kernels/matvec_rows.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(matvec_common_1, MatvecParams, kVectorThreads) {
  run_matvec<CommonDigits, 1, 4>(p, 1);
}
GPU_KERNEL(matvec_common_4, MatvecParams, kVectorThreads) {
  run_matvec<CommonDigits, 4, 2>(p, p.n_rows);
}
GPU_KERNEL(gated_common_1, GatedParams, kVectorThreads) {
  run_gated<CommonDigits, 1, 2>(p, 1);
}
GPU_KERNEL(gated_common_4, GatedParams, kVectorThreads) {
  run_gated<CommonDigits, 4, 1>(p, p.n_rows);
}
GPU_KERNEL(gated_pairs_common, ExpertPairsParams, kVectorThreads) {
  run_gated_pairs<CommonDigits, 2>(p);
}
GPU_KERNEL(down_pairs_common, ExpertPairsParams, kVectorThreads) {
  run_down_pairs<CommonDigits, 4>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
