#include "quant/interleave.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "quant/block_tile.h"

namespace moeflux {
namespace {

// The planes of a view are its owner's memory, which is writable.
std::byte* writable(const std::byte* plane) {
  return const_cast<std::byte*>(plane);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

template <class T>
T load(const std::byte* from, std::int64_t index) {
  T value;
  std::memcpy(&value, from + index * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}

// [rows, cols] of T to [cols, rows]. A few columns at a time, so that lines are written whole.
template <class T>
void transpose(const std::byte* from, std::int64_t rows, std::int64_t cols, std::byte* to) {
  constexpr std::int64_t kAtOnce = 64 / sizeof(T);
  for (std::int64_t c = 0; c < cols; c += kAtOnce) {
    const std::int64_t end = std::min(c + kAtOnce, cols);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t k = c; k < end; ++k) {
        const T value = load<T>(from, r * cols + k);
        std::memcpy(to + (k * rows + r) * std::int64_t{sizeof(T)}, &value, sizeof(T));
      }
    }
  }
}

// Four by four: how the compiler turns dwords in registers.
using Four = std::uint32_t __attribute__((vector_size(16)));

void transpose_fours(const std::byte* from, std::int64_t from_stride, std::byte* to,
                     std::int64_t to_stride) {
  Four a, b, c, d;
  std::memcpy(&a, from, sizeof a);
  std::memcpy(&b, from + from_stride, sizeof b);
  std::memcpy(&c, from + 2 * from_stride, sizeof c);
  std::memcpy(&d, from + 3 * from_stride, sizeof d);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Four out[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                       __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                       __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                       __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * to_stride, &out[i], sizeof out[i]);
}

// A plane of `size` byte elements, in place.
void turn(std::byte* plane, std::int64_t rows, std::int64_t cols, std::size_t size,
          std::byte* scratch) {
  std::memcpy(scratch, plane, static_cast<std::size_t>(rows * cols) * size);
  switch (size) {
    case 4:
      if (rows % 4 != 0 || cols % 4 != 0)
        return transpose<std::uint32_t>(scratch, rows, cols, plane);
      return transpose_dwords(scratch, cols * 4, rows, cols, plane, rows * 4);
    case 2:
      return transpose<std::uint16_t>(scratch, rows, cols, plane);
    default:
      MOEFLUX_ASSERT(size == 1);
      return transpose<std::uint8_t>(scratch, rows, cols, plane);
  }
}

bool has_tiles(const WeightFormat& format) {
  const int group = format.group;
  return format.kind == WeightKind::Fp4 || format.kind == WeightKind::Block ||
         (format.kind == WeightKind::Affine && (group == 32 || group == 64 || group == 128));
}

}  // namespace

void transpose_dwords(const std::byte* from, std::int64_t from_stride, std::int64_t rows,
                      std::int64_t cols, std::byte* to, std::int64_t to_stride) {
  const std::int64_t fours = rows - rows % 4;
  std::int64_t c = 0;
  for (; c + 4 <= cols; c += 4) {
    for (std::int64_t r = 0; r < fours; r += 4)
      transpose_fours(from + r * from_stride + c * 4, from_stride, to + c * to_stride + r * 4,
                      to_stride);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = r < fours ? c : 0; k < cols; ++k)
      std::memcpy(to + k * to_stride + r * 4, from + r * from_stride + k * 4, 4);
  }
}

std::size_t bias_element_bytes(const WeightFormat& format) {
  if (format.kind != WeightKind::Affine || format.zero == AffineZero::MidCode) return 0;
  return format.zero == AffineZero::ZeroPoint ? 1 : dtype_size(format.scale_dtype);
}

WeightFormat arranged(WeightFormat format, bool is_interleaved) {
  format.is_interleaved = is_interleaved && has_tiles(format);
  return format;
}

void arrange_plane(std::byte* plane, std::int64_t rows, std::int64_t row_elements,
                   std::size_t element_bytes, bool to_tiles) {
  const auto row_bytes = static_cast<std::size_t>(row_elements) * element_bytes;
  std::vector<std::byte> scratch(static_cast<std::size_t>(kTileRows) * row_bytes);
  for (std::int64_t first = 0; first < rows; first += kTileRows) {
    const std::int64_t n = std::min(kTileRows, rows - first);
    std::byte* at = plane + static_cast<std::size_t>(first) * row_bytes;
    to_tiles ? turn(at, n, row_elements, element_bytes, scratch.data())
             : turn(at, row_elements, n, element_bytes, scratch.data());
  }
}

std::size_t tile_scratch_bytes(const WeightFormat& format, std::int64_t cols) {
  const auto size = static_cast<std::int64_t>(dtype_size(format.scale_dtype));
  const std::int64_t plane = scales_per_row(format, cols) * size;  // none of blocks
  return static_cast<std::size_t>(kTileRows * std::max(data_row_bytes(format, cols), plane));
}

void arrange_tile(const WeightView& matrix, std::int64_t index, std::span<std::byte> scratch) {
  const WeightFormat& format = matrix.format;
  MOEFLUX_ASSERT(has_tiles(format) && index < n_tiles(matrix.rows));
  MOEFLUX_ASSERT(scratch.size() >= tile_scratch_bytes(format, matrix.cols));
  const std::int64_t first = index * kTileRows;
  const std::int64_t rows = std::min(kTileRows, matrix.rows - first);
  if (format.kind == WeightKind::Block) {
    return arrange_block_tile(format.blocks,
                              writable(matrix.data) + first * data_row_bytes(format, matrix.cols),
                              rows, matrix.cols, !format.is_interleaved, scratch);
  }
  const auto turn_plane = [&](const std::byte* plane, std::int64_t elements, std::size_t size) {
    std::byte* at = writable(plane) + first * elements * static_cast<std::int64_t>(size);
    format.is_interleaved ? turn(at, elements, rows, size, scratch.data())
                          : turn(at, rows, elements, size, scratch.data());
  };
  turn_plane(matrix.data, data_row_bytes(format, matrix.cols) / 4, 4);
  const std::int64_t n_groups = scales_per_row(format, matrix.cols);
  turn_plane(matrix.scales, n_groups, dtype_size(format.scale_dtype));
  if (const std::size_t size = bias_element_bytes(format); size > 0)
    turn_plane(matrix.biases, n_groups, size);
}

}  // namespace moeflux
