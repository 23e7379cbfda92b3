#include "backends/cuda/operands.h"

#include <algorithm>

#include "backends/cuda/launch.h"
#include "base/error.h"

namespace moeflux::cuda {
namespace {

gpu::ScaleType scale_type(DType type) {
  switch (type) {
    case DType::F32:
      return gpu::ScaleType::F32;
    case DType::F16:
      return gpu::ScaleType::F16;
    case DType::BF16:
      return gpu::ScaleType::BF16;
    case DType::U8:
      return gpu::ScaleType::E8M0;
    case DType::F8E4M3:
      return gpu::ScaleType::E4M3;
    default:
      fail(Errc::Unsupported, "the GPU has no scales of this type");
  }
}

gpu::Kind kind(WeightKind kind) {
  switch (kind) {
    case WeightKind::F32:
      return gpu::Kind::F32;
    case WeightKind::F16:
      return gpu::Kind::F16;
    case WeightKind::BF16:
      return gpu::Kind::BF16;
    case WeightKind::Affine:
      return gpu::Kind::Affine;
    case WeightKind::Fp8Block:
      return gpu::Kind::Fp8Block;
    case WeightKind::Fp4:
      return gpu::Kind::Fp4;
    case WeightKind::Block:
      break;
  }
  fail(Errc::Unsupported, "the GPU does not run weights in blocks of GGUF yet; use --device cpu");
}

}  // namespace

gpu::DeviceWeight device_weight(const Weight& weight) {
  const WeightFormat& f = weight.format;
  MOEFLUX_ASSERT(!f.is_interleaved);
  const auto plane = [&](std::uint64_t offset) {
    return weight.buffer == nullptr || offset == Weight::kNoPlane
               ? nullptr
               : reinterpret_cast<const unsigned char*>(address(weight.buffer, offset));
  };
  auto w = zeroed<gpu::DeviceWeight>();
  w.data = plane(weight.data);
  w.scales = plane(weight.scales);
  w.biases = plane(weight.biases);
  w.row_bytes = data_row_bytes(f, weight.cols);
  w.rows = static_cast<std::int32_t>(weight.rows);
  w.cols = static_cast<std::int32_t>(weight.cols);
  w.scales_per_row = static_cast<std::int32_t>(scales_per_row(f, weight.cols));
  w.kind = kind(f.kind);
  w.bits = f.kind == WeightKind::Fp4 ? 4 : f.bits;
  w.group = f.kind == WeightKind::Fp8Block ? f.block : f.group;
  w.block_rows = f.kind == WeightKind::Fp8Block ? static_cast<std::int32_t>(rows_per_scale(f)) : 1;
  w.block_row0 = static_cast<std::int32_t>(weight.block_row0);
  w.scale_type =
      f.kind == WeightKind::F32 || f.kind == WeightKind::F16 || f.kind == WeightKind::BF16
          ? gpu::ScaleType::F32
          : scale_type(f.scale_dtype);
  w.zero = f.zero == AffineZero::Bias      ? gpu::Zero::Bias
           : f.zero == AffineZero::MidCode ? gpu::Zero::MidCode
                                           : gpu::Zero::ZeroPoint;
  w.has_tensor_scale = f.has_tensor_scale;
  w.tensor_scale_divides = f.tensor_scale_divides;
  return w;
}

gpu::DeviceKv device_kv(const KvView& cache) {
  const KvShape& shape = cache.shape;
  auto kv = zeroed<gpu::DeviceKv>();
  kv.data = reinterpret_cast<unsigned char*>(address(cache.buffer, cache.offset));
  kv.head_bytes = shape.head_bytes();
  kv.row_bytes = shape.row_bytes();
  kv.element = shape.type == KvType::F32    ? gpu::KvElement::F32
               : shape.type == KvType::F16  ? gpu::KvElement::F16
               : shape.type == KvType::BF16 ? gpu::KvElement::BF16
                                            : gpu::KvElement::Q8;
  kv.is_tiled = shape.layout == KvLayout::Tiles;
  kv.d = shape.d;
  return kv;
}

}  // namespace moeflux::cuda
