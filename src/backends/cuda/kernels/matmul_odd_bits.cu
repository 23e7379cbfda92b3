// Products of many rows with weights of two, three, five and six bits.
#include "backends/cuda/kernels/tile_product.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(product_affine_2, ProductParams, 128) {
  product_of_stored<ChunkOpener<Kind::Affine, 2>>(p);
}
GPU_KERNEL(product_affine_3, ProductParams, 128) {
  product_of_stored<ChunkOpener<Kind::Affine, 3>>(p);
}
GPU_KERNEL(product_affine_5, ProductParams, 128) {
  product_of_stored<ChunkOpener<Kind::Affine, 5>>(p);
}
GPU_KERNEL(product_affine_6, ProductParams, 128) {
  product_of_stored<ChunkOpener<Kind::Affine, 6>>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
