// Products of many rows with weights that do not open in chunks, or of two formats.
#include "backends/cuda/kernels/tile_product.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_KERNEL(product_any, ProductParams, 128) {
  product_of_stored<SlowOpener>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
