// Products of many rows with weights of four bits.
#include "backends/cuda/kernels/tile_product.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(product_affine_4, ProductParams, 128) {
  product_of_stored<ChunkOpener<Kind::Affine, 4>>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
