#include "model/stored_tensor.h"

#include "base/error.h"
#include "base/portable_math.h"
#include "quant/codec.h"
#include "quant/interleave.h"

namespace moeflux {

std::uint64_t StoredMatrix::bytes() const {
  if (repack == nullptr || repack->stored_rows == rows) return read_bytes();
  return read_bytes() / static_cast<std::uint64_t>(repack->stored_rows) *
         static_cast<std::uint64_t>(rows);
}

StoredMatrix StoredMatrix::slice(std::int64_t begin, std::int64_t count) const {
  MOEFLUX_ASSERT(begin >= 0 && count > 0 && begin + count <= rows);
  if (format.is_interleaved &&
      (begin % kTileRows != 0 || (count % kTileRows != 0 && begin + count != rows))) {
    fail(Errc::Unsupported, "tensor \"{}\": rows {} to {} are no whole tiles", name, begin,
         begin + count);
  }
  if (repack != nullptr) return pick({{.first = begin, .take = count, .stride = count}});
  StoredMatrix part = *this;
  part.rows = count;
  const auto take = [](Extent& extent, std::int64_t first, std::int64_t n, std::int64_t row_bytes) {
    extent.offset += static_cast<std::uint64_t>(first * row_bytes);
    extent.bytes = static_cast<std::uint64_t>(n * row_bytes);
  };
  take(part.data, begin, count, data_row_bytes(format, cols));
  const std::int64_t scale_row =
      scales_per_row(format, cols) * static_cast<std::int64_t>(dtype_size(format.scale_dtype));
  if (format.kind == WeightKind::Fp8Block) {
    const std::int64_t block = rows_per_scale(format);
    const std::int64_t first_row = block_row0 + begin;
    const std::int64_t first_block = first_row / block;
    const std::int64_t last_block = (first_row + count - 1) / block;
    take(part.scales, first_block, last_block - first_block + 1, scale_row);
    part.block_row0 = first_row - first_block * block;
  } else if (scale_row > 0) {
    take(part.scales, begin, count, scale_row);
    if (format.kind == WeightKind::Affine && has_biases(format))
      take(part.biases, begin, count, bias_bytes(format, 1, cols));
  }
  return part;
}

StoredMatrix StoredMatrix::pick(const RowRuns& runs) const {
  const bool is_plain = repack == nullptr;
  if (format.is_interleaved || (is_plain && block_row0 != 0)) {
    fail(Errc::Unsupported, "tensor \"{}\": single rows cannot be taken out of {}", name,
         format.is_interleaved ? "interleaved tiles" : "a part of FP8 blocks");
  }
  for (const RowRun& run : runs) {
    const bool inside = run.first >= 0 && run.take > 0 && run.count > 0 && run.stride > 0 &&
                        run.first + (run.count - 1) * run.stride + run.take <= rows;
    if (!inside) {
      fail(Errc::BadInput, "tensor \"{}\": has {} rows, but {} from row {} on are asked for", name,
           rows, (run.count - 1) * run.stride + run.take, run.first);
    }
  }
  StoredMatrix part = *this;
  part.rows = n_rows_of(runs);
  if (is_plain) {
    const Repack all{.stored_rows = rows,
                     .stored_block_rows = rows_per_scale(format),
                     .rows = {{.first = 0, .take = rows, .stride = rows}}};
    part.repack = std::make_shared<const Repack>(all.pick(runs));
  } else {
    part.repack = std::make_shared<const Repack>(repack->pick(runs));
  }
  if (format.kind == WeightKind::Fp8Block) {
    part.format.block_rows = 1;
    if (format.block >= cols) part.format.block = kWholeBlock;
  }
  return part;
}

std::string describe(const StoredMatrix& matrix) {
  const std::string format = describe(matrix.format);
  if (matrix.repack == nullptr || packing_name(matrix.repack->packing).empty()) return format;
  return fmt::format("{} ({})", format, packing_name(matrix.repack->packing));
}

StoredVector StoredVector::every(std::int64_t first_of, std::int64_t step_of) const {
  MOEFLUX_ASSERT(first_of >= 0 && step_of > first_of && size % step_of == 0 && columns == 0);
  StoredVector part = *this;
  part.size = size / step_of;
  part.first = first + first_of * step;
  part.step = step * step_of;
  return part;
}

std::vector<float> StoredVector::decode(const std::byte* bytes) const {
  const auto element = static_cast<std::int64_t>(dtype_size(dtype));
  MOEFLUX_ASSERT((first + (size - 1) * step + 1) * element <=
                 static_cast<std::int64_t>(data.bytes));
  std::vector<float> values(static_cast<std::size_t>(size));
  if (step == 1) {
    decode_floats(dtype, bytes + first * element, size, values.data());
  } else {
    for (std::int64_t i = 0; i < size; ++i)
      decode_floats(dtype, bytes + (first + i * step) * element, 1,
                    &values[static_cast<std::size_t>(i)]);
  }
  if (are_negated_exps) {
    for (float& value : values) value = static_cast<float>(portable::log(-double{value}));
  }
  if (factor != 1) {
    for (float& value : values) value *= factor;
  }
  return values;
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

StoredExpertBank StoredExpertBank::pick(const RowRuns& runs) const {
  StoredExpertBank part = *this;
  for (StoredMatrix& matrix : part.each_) matrix = matrix.pick(runs);
  return part;
}

}  // namespace moeflux
