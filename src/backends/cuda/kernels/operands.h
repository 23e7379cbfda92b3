// Operands as kernels take them: addresses of the device and plain values. Read by both sides.
#pragma once

#include <cstdint>

namespace moeflux::gpu {

inline constexpr int kWarp = 32;  // threads

enum class Kind : std::int32_t { F32, F16, BF16, Affine, Fp8Block, Fp4 };
enum class ScaleType : std::int32_t { F32, F16, BF16, E8M0, E4M3 };
enum class Zero : std::int32_t { Bias, MidCode, ZeroPoint };

// The planes of quant/weight_format.h, in rows, at any alignment.
struct DeviceWeight {
  const unsigned char *data, *scales, *biases;
  std::int64_t row_bytes;
  std::int32_t rows, cols;
  std::int32_t scales_per_row;
  Kind kind;
  std::int32_t bits;
  std::int32_t group;       // Affine, Fp4; Fp8Block: its block
  std::int32_t block_rows;  // Fp8Block: rows that share a scale
  std::int32_t block_row0;
  ScaleType scale_type;
  Zero zero;
  std::int32_t has_tensor_scale, tensor_scale_divides;  // Fp4: `biases` is the scale
};

enum class KvElement : std::int32_t { F32, F16, BF16, Q8 };

// A cache of backends/kv_cache.h.
struct DeviceKv {
  unsigned char* data;
  std::int64_t head_bytes, row_bytes;
  KvElement element;
  std::int32_t is_tiled;
  std::int32_t d;
  std::int32_t unused;
};

}  // namespace moeflux::gpu
