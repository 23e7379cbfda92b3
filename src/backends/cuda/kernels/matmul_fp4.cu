// Products of many rows with weights of E2M1 numbers.
#include "backends/cuda/kernels/tile_product.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(product_fp4, ProductParams, 128) {
  product_of_stored<ChunkOpener<Kind::Fp4, 4>>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
