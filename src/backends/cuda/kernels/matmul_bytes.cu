// Products of many rows with weights of eight bits.
#include "backends/cuda/kernels/tile_product.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(product_affine_8, ProductParams, 128) {
  product_of_stored<ChunkOpener<Kind::Affine, 8>>(p);
}
GPU_KERNEL(product_fp8, ProductParams, 128) {
  product_of_stored<ChunkOpener<Kind::Fp8Block, 8>>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
