#include "source/read_matrix.h"

#include "base/error.h"

namespace moeflux {

void refuse_zero_points(const std::string& matrix) {
  fail(Errc::Unsupported,
       "tensor \"{}\": a zero point is 256, which does not fit into a byte: take a release with "
       "symmetric quantization",
       matrix);
}

void repack_all(const StoredMatrix& matrix, const StoredPlanes& from, const WeightView& to) {
  MOEFLUX_ASSERT(matrix.repack != nullptr);
  if (!repack_rows(*matrix.repack, from, to, 0, matrix.rows)) refuse_zero_points(matrix.name);
}

LoadedMatrix::LoadedMatrix(const ModelSource& source, const StoredMatrix& matrix)
    : bytes_(matrix.in_memory()),
      view_{.format = matrix.format,
            .rows = matrix.rows,
            .cols = matrix.cols,
            .block_row0 = matrix.block_row0} {
  const std::uint64_t kept = bytes_.data + bytes_.scales + bytes_.biases;
  memory_ = std::make_unique<std::byte[]>(kept);
  const auto plane = [&](std::uint64_t offset, std::uint64_t bytes) {
    return bytes == 0 ? nullptr : memory_.get() + offset;
  };
  view_.data = plane(0, bytes_.data);
  view_.scales = plane(bytes_.data, bytes_.scales);
  view_.biases = plane(bytes_.data + bytes_.scales, bytes_.biases);

  // Without a repack the extents are the planes.
  std::unique_ptr<std::byte[]> stored;
  std::byte* to = memory_.get();
  if (matrix.repack != nullptr) {
    stored = std::make_unique<std::byte[]>(matrix.read_bytes());
    to = stored.get();
  } else {
    MOEFLUX_ASSERT(matrix.read_bytes() == kept);
  }
  StoredPlanes from;
  const auto read = [&](const Extent& extent) -> const std::byte* {
    if (extent.bytes == 0) return nullptr;
    source.read(extent, {to, extent.bytes});
    to += extent.bytes;
    return to - extent.bytes;
  };
  from.data = read(matrix.data);
  from.scales = read(matrix.scales);
  from.biases = read(matrix.biases);
  if (matrix.repack != nullptr) repack_all(matrix, from, view_);
}

}  // namespace moeflux
