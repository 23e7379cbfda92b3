#include "runtime/snapshot/kv_rows.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "quant/codec.h"
#include "runtime/host_bytes.h"

namespace moeflux {
namespace {

// kOut: from the cache to the rows; else the other way, and Byte is const.
template <bool kOut, class Byte>
void copy_bytes(std::byte* cache, Byte* rows, std::size_t n) noexcept {
  if constexpr (kOut) {
    std::memcpy(rows, cache, n);
  } else {
    std::memcpy(cache, rows, n);
  }
}

// Part of a tile: n columns of n_lanes positions, elements of kSize bytes. In the tile a column is
// [16 positions]; outside, a position is `row_stride` bytes further than the one before.
template <bool kOut, int kSize, class Byte>
void copy_columns(std::byte* tile, Byte* rows, std::int64_t row_stride, std::int64_t n,
                  std::int64_t n_lanes) noexcept {
  for (std::int64_t c = 0; c < n; ++c) {
    for (std::int64_t lane = 0; lane < n_lanes; ++lane)
      copy_bytes<kOut>(tile + (c * kKvLanes + lane) * kSize, rows + lane * row_stride + c * kSize,
                       kSize);
  }
}

// The codes, and the scales of q8, of the positions from `first_lane` on that share a tile.
template <bool kOut, class Byte>
void copy_tile(const KvShape& shape, std::byte* tile, std::int64_t first_lane, Byte* rows,
               std::int64_t row_stride, std::int64_t n_lanes) noexcept {
  const auto copy = [&]<int kSize>(std::int64_t tile_offset, std::int64_t row_offset,
                                   std::int64_t n) {
    copy_columns<kOut, kSize>(tile + tile_offset + first_lane * kSize, rows + row_offset,
                              row_stride, n, n_lanes);
  };
  const std::int64_t d = shape.d;
  switch (shape.type) {
    case KvType::F32:
      return copy.template operator()<4>(0, 0, d);
    case KvType::F16:
    case KvType::BF16:
      return copy.template operator()<2>(0, 0, d);
    case KvType::Q8:
      copy.template operator()<1>(0, 0, d);
      copy.template operator()<2>(d * kKvLanes, d, (d + kKvQ8Group - 1) / kKvQ8Group);
  }
}

// Positions [first, first + n) of one head, whose bytes from at(head, first) on are `cache`.
template <bool kOut, class Byte>
void copy_tiles(const KvShape& shape, std::byte* cache, std::int64_t first, std::int64_t n,
                Byte* rows, std::int64_t row_stride) noexcept {
  for (std::int64_t begin = first, end; begin < first + n; begin = end) {
    end = std::min(begin - begin % kKvLanes + kKvLanes, first + n);
    copy_tile<kOut>(shape, cache, begin % kKvLanes, rows + (begin - first) * row_stride, row_stride,
                    end - begin);
    cache += kKvLanes * shape.row_bytes();
  }
}

template <bool kOut, class Byte>
void copy_rows(const KvShape& shape, std::byte* cache, std::int64_t n, Byte* rows,
               std::int64_t row_stride) noexcept {
  const std::int64_t bytes = shape.row_bytes();
  for (std::int64_t i = 0; i < n; ++i)
    copy_bytes<kOut>(cache + i * bytes, rows + i * row_stride, static_cast<std::size_t>(bytes));
}

// The bytes of a head's positions [first, first + n), in whole tiles where it has tiles.
Bytes head_range(const KvView& view, int head, std::int64_t first, std::int64_t n) {
  const KvShape& shape = view.shape;
  const std::int64_t begin = view.at(head, first);
  const std::int64_t end = shape.layout == KvLayout::Tiles
                               ? view.at(head, first + n - 1) + kKvLanes * shape.row_bytes()
                               : view.at(head, first + n);
  return {view.buffer, view.offset + static_cast<std::uint64_t>(begin),
          static_cast<std::uint64_t>(end - begin)};
}

// From the cache to the rows, or back.
template <bool kOut, class Byte>
void copy_cache(Backend& backend, const KvView& view, std::int64_t first, std::int64_t n,
                Byte* rows) {
  if (n == 0) return;
  const KvShape& shape = view.shape;
  const std::int64_t row_stride = shape.n_heads * shape.row_bytes();
  for (int head = 0; head < shape.n_heads; ++head) {
    HostBytes cache(backend, head_range(view, head, first, n));
    Byte* of_head = rows + head * shape.row_bytes();
    if (shape.layout == KvLayout::Tiles) {
      copy_tiles<kOut>(shape, cache.data(), first, n, of_head, row_stride);
    } else {
      copy_rows<kOut>(shape, cache.data(), n, of_head, row_stride);
    }
    if constexpr (!kOut) cache.store();
  }
}

void decode_q8_row(const std::byte* row, std::int64_t d, float* out) noexcept {
  for (std::int64_t c = 0; c < d; ++c) {
    std::uint16_t scale = 0;
    std::memcpy(&scale, row + d + c / kKvQ8Group * 2, sizeof scale);
    out[c] = static_cast<float>(static_cast<std::int8_t>(row[c])) * bf16_to_float(scale);
  }
}

void check_range(const KvShape& shape, std::int64_t first, std::int64_t n, std::size_t bytes) {
  MOEFLUX_ASSERT(first >= 0 && n >= 0 && first <= shape.capacity && n <= shape.capacity - first);
  MOEFLUX_ASSERT(bytes == kv_rows_bytes(shape, n));
}

}  // namespace

std::uint64_t kv_rows_bytes(const KvShape& shape, std::int64_t n_positions) {
  return static_cast<std::uint64_t>(n_positions * shape.n_heads * shape.row_bytes());
}

void export_kv_rows(Backend& backend, const KvView& view, std::int64_t first, std::int64_t n,
                    std::span<std::byte> out) {
  check_range(view.shape, first, n, out.size());
  copy_cache<true>(backend, view, first, n, out.data());
}

void import_kv_rows(Backend& backend, const KvView& view, std::int64_t first, std::int64_t n,
                    std::span<const std::byte> in) {
  check_range(view.shape, first, n, in.size());
  copy_cache<false>(backend, view, first, n, in.data());
}

void decode_kv_rows(const KvShape& shape, std::span<const std::byte> rows, float* out) {
  const auto row_bytes = static_cast<std::size_t>(shape.row_bytes());
  MOEFLUX_ASSERT(rows.size() % (row_bytes * static_cast<std::size_t>(shape.n_heads)) == 0);
  const std::size_t n_rows = rows.size() / row_bytes;
  if (shape.type == KvType::Q8) {
    for (std::size_t i = 0; i < n_rows; ++i)
      decode_q8_row(rows.data() + i * row_bytes, shape.d,
                    out + i * static_cast<std::size_t>(shape.d));
    return;
  }
  const DType dtype = shape.type == KvType::F32   ? DType::F32
                      : shape.type == KvType::F16 ? DType::F16
                                                  : DType::BF16;
  decode_floats(dtype, rows.data(), static_cast<std::int64_t>(n_rows) * shape.d, out);
}

}  // namespace moeflux
