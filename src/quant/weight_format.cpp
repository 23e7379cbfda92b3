#include "quant/weight_format.h"

#include <fmt/format.h>

namespace moeflux {
namespace {

std::string describe_fp8(const WeightFormat& format) {
  const std::int64_t rows = rows_per_scale(format);
  if (rows == 1 && format.block == 32 && format.scale_dtype == DType::U8) return "mxfp8";
  if (rows == kWholeBlock) return "fp8 per tensor";
  if (rows == 1 && format.block == kWholeBlock) return "fp8 per row";
  if (rows == format.block) return fmt::format("fp8 block {}", format.block);
  return fmt::format("fp8 block {}x{}", rows, format.block);
}

}  // namespace

std::string describe(const WeightFormat& format) {
  switch (format.kind) {
    case WeightKind::F32:
      return "f32";
    case WeightKind::F16:
      return "f16";
    case WeightKind::BF16:
      return "bf16";
    case WeightKind::Affine:
      return fmt::format("{} {}-bit g{}", format.zero == AffineZero::Bias ? "affine" : "int",
                         format.bits, format.group);
    case WeightKind::Fp8Block:
      return describe_fp8(format);
    case WeightKind::Fp4:
      return format.group == 16 ? "nvfp4" : "mxfp4";
    case WeightKind::Block:
      return std::string(block_type_name(format.blocks));
  }
  return "?";
}

std::int64_t data_row_bytes(const WeightFormat& format, std::int64_t cols) {
  switch (format.kind) {
    case WeightKind::F32:
      return cols * 4;
    case WeightKind::F16:
    case WeightKind::BF16:
      return cols * 2;
    case WeightKind::Affine:
      return (cols * format.bits + 31) / 32 * 4;
    case WeightKind::Fp4:
      return cols / 2;
    case WeightKind::Fp8Block:
      return cols;
    case WeightKind::Block: {
      const BlockShape block = block_shape(format.blocks);
      return cols / block.values * block.bytes;
    }
  }
  return 0;
}

std::int64_t scales_per_row(const WeightFormat& format, std::int64_t cols) {
  switch (format.kind) {
    case WeightKind::Affine:
    case WeightKind::Fp4:
      return cols / format.group;
    case WeightKind::Fp8Block:
      return (cols + format.block - 1) / format.block;
    default:
      return 0;
  }
}

std::int64_t rows_per_scale(const WeightFormat& format) {
  if (format.kind != WeightKind::Fp8Block) return 1;
  return format.block_rows > 0 ? format.block_rows : format.block;
}

std::int64_t scale_bytes(const WeightFormat& format, std::int64_t rows, std::int64_t cols,
                         std::int64_t block_row0) {
  const std::int64_t per_row =
      scales_per_row(format, cols) * static_cast<std::int64_t>(dtype_size(format.scale_dtype));
  const std::int64_t block = rows_per_scale(format);
  return (block_row0 % block + rows + block - 1) / block * per_row;
}

std::int64_t bias_bytes(const WeightFormat& format, std::int64_t rows, std::int64_t cols) {
  if (!has_biases(format)) return 0;
  if (format.kind == WeightKind::Fp4) return sizeof(float);
  const bool are_bytes = format.zero == AffineZero::ZeroPoint;
  return rows * scales_per_row(format, cols) *
         static_cast<std::int64_t>(are_bytes ? 1 : dtype_size(format.scale_dtype));
}

bool has_biases(const WeightFormat& format) {
  return (format.kind == WeightKind::Affine && format.zero != AffineZero::MidCode) ||
         (format.kind == WeightKind::Fp4 && format.has_tensor_scale);
}

}  // namespace moeflux
