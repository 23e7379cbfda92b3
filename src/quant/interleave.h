// Affine, Fp4 and Block matrices in interleaved tiles: the order in which products read them from
// memory.
//
// Sixteen rows are a tile; the last one may have fewer. Each plane of a tile is transposed: of the
// codes, dword c of row r is dword c * n_rows + r; of scales and biases, element g of row r is
// element g * n_rows + r. The scale of a whole Fp4 matrix stays where it is. Blocks are taken apart
// first (quant/block_tile.h). A tile takes exactly the bytes of its rows, so a matrix is rearranged
// where it lies. The lanes of a vector register
// are then rows, which neither shuffles nor sums across lanes, and a product reads one stream of
// memory from its begin to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/weight_format.h"

namespace moeflux {

inline constexpr std::int64_t kTileRows = 16;

constexpr std::int64_t n_tiles(std::int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows;
}

// Bytes of a group's bias or zero point; 0 when groups have none.
std::size_t bias_element_bytes(const WeightFormat& format);

// The matrix that `matrix` would be in interleaved tiles or in rows. Fp4 and Block have tiles, and
// Affine with groups of 32, 64 or 128.
WeightFormat arranged(WeightFormat format, bool is_interleaved);

// From rows to tiles or back, in place: one plane of a matrix, with row_elements elements of 1, 2
// or 4 bytes in a row (dwords of codes; scales; biases).
void arrange_plane(std::byte* plane, std::int64_t rows, std::int64_t row_elements,
                   std::size_t element_bytes, bool to_tiles);

// [rows, cols] dwords to [cols, rows]; strides are bytes from one row to the next.
void transpose_dwords(const std::byte* from, std::int64_t from_stride, std::int64_t rows,
                      std::int64_t cols, std::byte* to, std::int64_t to_stride);

// Bytes of memory that arrange_tile() needs.
std::size_t tile_scratch_bytes(const WeightFormat& format, std::int64_t cols);

// The same for tile `index` of all planes of a matrix, which must be writable and lie as `matrix`
// says. Afterwards its format is the other one.
void arrange_tile(const WeightView& matrix, std::int64_t index, std::span<std::byte> scratch);

}  // namespace moeflux
