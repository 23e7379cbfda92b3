// Products of many rows with weights of 16-bit floats.
#include "backends/cuda/kernels/tile_product.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(product_bf16, ProductParams, 128) {
  product_of_stored<ChunkOpener<Kind::BF16, 16>>(p);
}
GPU_KERNEL(product_f16, ProductParams, 128) {
  product_of_stored<ChunkOpener<Kind::F16, 16>>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
