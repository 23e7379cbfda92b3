#include "convert/expert_record.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "quant/codec.h"
#include "quant/panels.h"
#include "source/checksum.h"

namespace moeflux {

std::span<const std::byte> RecordBuilder::build(const PlannedBank& bank,
                                                const ContainerBank& layout, int expert) {
  record_.assign(layout.record_bytes, std::byte{0});
  errors_.assign(bank.matrices.size(), {});
  std::span<const ContainerPlane> planes = layout.planes;
  for (std::size_t i = 0; i < bank.matrices.size(); ++i) {
    const PlannedMatrix& matrix = bank.matrices[i];
    const std::size_t n_planes = matrix.planes().size();
    if (matrix.requantized) {
      errors_[i] = requantize(matrix, expert, planes.first(n_planes));
    } else {
      copy(matrix.source(expert), planes.first(n_planes));
    }
    planes = planes.subspan(n_planes);
  }
  return record_;
}

void RecordBuilder::copy(const StoredMatrix& from, std::span<const ContainerPlane> planes) {
  std::size_t next = 0;
  for (const Extent& extent : {from.data, from.scales, from.biases}) {
    if (extent.bytes == 0) continue;
    const ContainerPlane& plane = planes[next++];
    MOEFLUX_ASSERT(plane.bytes == extent.bytes);
    source_.read(extent, std::span(record_).subspan(plane.offset, plane.bytes));
    arrange(plane, from.format.in_panels);
  }
  MOEFLUX_ASSERT(next == planes.size());
}

// A plane of the record that was written in rows or in panels becomes what it is to be.
void RecordBuilder::arrange(const ContainerPlane& plane, bool is_in_panels) {
  if (plane.in_panels == is_in_panels) return;
  arrange_plane(record_.data() + plane.offset, plane.shape[0], plane.shape[1],
                dtype_size(plane.dtype), plane.in_panels);
}

SquaredError RecordBuilder::requantize(const PlannedMatrix& matrix, int expert,
                                       std::span<const ContainerPlane> planes) {
  const StoredMatrix from = matrix.source(expert);
  scratch_.resize(from.bytes());
  std::size_t used = 0;
  const auto load = [&](const Extent& extent) -> const std::byte* {
    if (extent.bytes == 0) return nullptr;
    const std::span<std::byte> out = std::span(scratch_).subspan(used, extent.bytes);
    source_.read(extent, out);
    used += extent.bytes;
    return out.data();
  };
  WeightView view{
      .format = from.format, .rows = from.rows, .cols = from.cols, .block_row0 = from.block_row0};
  view.data = load(from.data);
  view.scales = load(from.scales);
  view.biases = load(from.biases);

  row_.resize(static_cast<std::size_t>(from.cols));
  SquaredError sums;
  for (std::int64_t row = 0; row < from.rows; ++row) {
    decode_row(view, row, row_.data());
    if (!std::all_of(row_.begin(), row_.end(), [](float w) { return std::isfinite(w); })) {
      fail(Errc::BadInput,
           "{}: tensor \"{}\", expert {}, row {}: a weight is not finite and cannot be quantized",
           source_.path(), from.name, expert, row);
    }
    const auto at = [&](std::size_t plane) {
      const ContainerPlane& to = planes[plane];
      return record_.data() + to.offset +
             static_cast<std::uint64_t>(row) * (to.bytes / static_cast<std::uint64_t>(from.rows));
    };
    sums.add(quantize_affine_row(row_, matrix.format.bits, matrix.format.group,
                                 {.data = at(0), .scales = at(1), .biases = at(2)}));
  }
  for (const ContainerPlane& plane : planes) arrange(plane, /*is_in_panels=*/false);
  return sums;
}

std::string errors_text(std::span<const SquaredError> errors) {
  std::string text;
  for (const SquaredError& e : errors) {
    text += checksum_text(std::bit_cast<std::uint64_t>(e.error)) +
            checksum_text(std::bit_cast<std::uint64_t>(e.norm));
  }
  return text;
}

std::vector<SquaredError> parse_errors(const std::string& text, std::size_t count) {
  std::vector<SquaredError> errors(count);
  for (std::size_t i = 0; i < count && text.size() >= 32 * (i + 1); ++i) {
    std::uint64_t error = 0, norm = 0;
    if (!parse_checksum(text.substr(32 * i, 16), error)) break;
    if (!parse_checksum(text.substr(32 * i + 16, 16), norm)) break;
    errors[i] = {std::bit_cast<double>(error), std::bit_cast<double>(norm)};
  }
  return errors;
}

}  // namespace moeflux
