#include "model/stored_tensor.h"

#include "base/error.h"
#include "quant/interleave.h"

namespace moeflux {

StoredMatrix StoredMatrix::slice(std::int64_t begin, std::int64_t count) const {
  MOEFLUX_ASSERT(begin >= 0 && count > 0 && begin + count <= rows);
  if (format.is_interleaved &&
      (begin % kTileRows != 0 || (count % kTileRows != 0 && begin + count != rows))) {
    fail(Errc::Unsupported, "tensor \"{}\": rows {} to {} are no whole tiles", name, begin,
         begin + count);
  }
  StoredMatrix part = *this;
  part.rows = count;
  const auto take = [](Extent& extent, std::int64_t first, std::int64_t n, std::int64_t row_bytes) {
    extent.offset += static_cast<std::uint64_t>(first * row_bytes);
    extent.bytes = static_cast<std::uint64_t>(n * row_bytes);
  };
  take(part.data, begin, count, data_row_bytes(format, cols));
  const std::int64_t scale_row =
      scales_per_row(format, cols) * static_cast<std::int64_t>(dtype_size(format.scale_dtype));
  if (format.kind == WeightKind::Affine) {
    take(part.scales, begin, count, scale_row);
    take(part.biases, begin, count, scale_row);
  } else if (format.kind == WeightKind::Fp8Block) {
    const std::int64_t first_row = block_row0 + begin;
    const std::int64_t first_block = first_row / format.block;
    const std::int64_t last_block = (first_row + count - 1) / format.block;
    take(part.scales, first_block, last_block - first_block + 1, scale_row);
    part.block_row0 = first_row - first_block * format.block;
  }
  return part;
}

StoredMatrix StoredExpertBank::at(int expert) const {
  MOEFLUX_ASSERT(expert >= 0 && expert < count());
  if (stacked_count_ == 0) return each_[static_cast<std::size_t>(expert)];
  StoredMatrix matrix = each_.front();
  const auto e = static_cast<std::uint64_t>(expert);
  matrix.data.offset += e * strides_.data;
  matrix.scales.offset += e * strides_.scales;
  matrix.biases.offset += e * strides_.biases;
  return matrix;
}

StoredExpertBank StoredExpertBank::slice(std::int64_t begin, std::int64_t count) const {
  StoredExpertBank part = *this;
  for (StoredMatrix& matrix : part.each_) matrix = matrix.slice(begin, count);
  return part;
}

}  // namespace moeflux
