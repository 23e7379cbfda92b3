// Whole blocks of a tile as codes from 0 on, with their scales as floats. Compiled for every
// processor: a point of a grid is a load, and signs take two operations on the bytes of a word.
#include <array>
#include <cstring>

#include "backends/cpu/rounded_blocks.h"
#include "quant/block_codec.h"
#include "quant/block_grids.h"

namespace moeflux::cpu {
namespace {

// TODO fast
}  // namespace

void open_whole_blocks(BlockType type, const BlockTile& tile, std::int64_t cols,
                       const RoundedScratch& out) noexcept {
  const BlockShape shape = block_shape(type);
  const BlockGroups groups = block_groups(type);
  const std::int64_t n_groups = shape.values / groups.values;
  std::memset(out.codes, 64, static_cast<std::size_t>(cols * kTileRows));
  std::memset(out.scales, 0, static_cast<std::size_t>(cols / groups.values * kTileRows) * 4);
  BlockParts parts;
  for (std::int64_t b = 0; b < cols / shape.values; ++b) {
    for (std::int64_t r = 0; r < tile.n_rows; ++r) {
      split_block(type, tile.codes + (b * tile.n_rows + r) * shape.bytes, parts);
      for (std::int64_t i = 0; i < shape.values; ++i) {
        const std::int64_t c = b * shape.values + i;
        out.codes[(c / 4 * kTileRows + r) * 4 + c % 4] =
            static_cast<std::byte>(parts.integers[static_cast<std::size_t>(i)] + 64);
      }
      for (std::int64_t g = 0; g < n_groups; ++g)
        out.scales[(b * n_groups + g) * kTileRows + r] = parts.scales[static_cast<std::size_t>(g)];
    }
  }
}

}  // namespace moeflux::cpu
