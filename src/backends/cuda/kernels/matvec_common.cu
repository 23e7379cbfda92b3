// Products of few rows of activations: 4 and 8 bits, activations rounded to 16 bits.
#include "backends/cuda/kernels/matvec_rows.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// Of one row: most rows of weights a thread, for rows of up to 2048 columns and of up to 4096; and
// most threads, for matrices of few rows.
GPU_EARLY_KERNEL(matvec_common_1, MatvecParams, kVectorThreads, 2) {
  run_matvec<CommonDigits, 1, 4, 2>(p, 1);
}
GPU_EARLY_KERNEL(matvec_common_1_long, MatvecParams, kVectorThreads, 2) {
  run_matvec<CommonDigits, 1, 2, 4>(p, 1);
}
GPU_EARLY_KERNEL(matvec_common_1_thin, MatvecParams, kVectorThreads, 2) {
  run_matvec<CommonDigits, 1, 1, 4>(p, 1);
}
GPU_EARLY_KERNEL(matvec_common_4, MatvecParams, kVectorThreads, 2) {
  run_matvec<CommonDigits, 4, 2, 1>(p, p.n_rows);
}
GPU_EARLY_KERNEL(gated_common_1, GatedParams, kVectorThreads, 2) {
  run_gated<CommonDigits, 1, 1, 2>(p, 1);
}
GPU_EARLY_KERNEL(gated_common_4, GatedParams, kVectorThreads, 2) {
  run_gated<CommonDigits, 4, 1, 1>(p, p.n_rows);
}
GPU_EARLY_KERNEL(gated_pairs_common, ExpertPairsParams, kVectorThreads, 2) {
  run_gated_pairs<CommonDigits, 2, 2>(p);
}
GPU_EARLY_KERNEL(down_pairs_common, ExpertPairsParams, kVectorThreads, 2) {
  run_down_pairs<CommonDigits, 4, 1>(p);
}
GPU_EARLY_KERNEL(expert_sums_common, ExpertSumsParams, kVectorThreads, 2) {
  run_expert_sums<CommonDigits, 2, 4>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
