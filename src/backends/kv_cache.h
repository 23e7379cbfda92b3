// What a sequence remembers for attention: one row of d values per head and position, in a layout
// that streams. The rows of a head are contiguous over positions.
//
//   Rows   [head][position][d]
//   Tiles  [head][position / 16][d][16 positions]: scores of 16 positions are sums down the columns
//          of a tile
//
// Types: f32, f16 and bf16 are stored as such. q8: signed bytes, and a bf16 scale for each 32
// values of a row. A row is d codes and then its scales; a tile is [d][16] codes and then [d / 32,
// rounded up][16] scales. So a row takes the same bytes in both layouts, and writing a row touches
// no other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backends/memory.h"

namespace moeflux {

enum class KvType { F32, F16, BF16, Q8 };
inline constexpr KvType kAllKvTypes[] = {KvType::F32, KvType::F16, KvType::BF16, KvType::Q8};
std::string_view kv_type_name(KvType type);  // "f32", "f16", "bf16", "q8"

enum class KvLayout { Rows, Tiles };

inline constexpr int kKvLanes = 16;    // positions of a tile
inline constexpr int kKvQ8Group = 32;  // values that share a scale

struct KvShape {
  KvType type = KvType::F32;
  KvLayout layout = KvLayout::Rows;
  int n_heads = 1;
  int d = 0;
  std::int64_t capacity = 0;  // positions

  std::int64_t row_bytes() const;   // of one head at one position
  std::int64_t head_bytes() const;  // from one head to the next; whole tiles in both layouts
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(n_heads * head_bytes()); }
};

struct KvView {
  KvShape shape;
  const Buffer* buffer = nullptr;
  std::uint64_t offset = 0;  // in the buffer; a multiple of 64

  // Where a position of a head begins, counted from the first: its row, or the tile it is in.
  std::int64_t at(std::int64_t head, std::int64_t position) const {
    const std::int64_t row =
        shape.layout == KvLayout::Tiles ? position - position % kKvLanes : position;
    return head * shape.head_bytes() + row * shape.row_bytes();
  }
};

}  // namespace moeflux
