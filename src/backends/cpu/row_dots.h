// Dot products of several rows with several others, for products of weights with many activations.
//
// Each is computed as KernelTable::dot does: sums over 16 lanes, products rounded before they are
// added, a tail in lanes 0, 1, ..., and a tree at the end. What is free is which of them run at the
// same time: a tile of rows and others, whose sums fill the registers, so that a value loaded is
// used several times. Registers narrower than 16 lanes take some lanes of all columns and then the
// next ones. Written once with vectors of the compiler, like vector_math.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/vector_math.h"

namespace moeflux::cpu {

// y[i * y_stride + r] = dot(a + r * a_stride, x + i * x_stride)
struct RowDots {
  const float* a;  // [n_a, n]
  std::int64_t a_stride, n_a;
  const float* x;  // [n_x, n]
  std::int64_t x_stride, n_x;
  std::int64_t n;
  float* y;  // [n_x, n_a]
  std::int64_t y_stride;
  // What will be needed afterwards; it comes into a cache on the way.
  const std::byte* next;
  std::int64_t next_bytes;
};

namespace {

constexpr int kDotLanes = 16;

// kRows x kOthers sums fit the registers. Where rows are passed several times, kBlock columns of
// them and of kGroup others do so in the nearest cache.
template <class V>
struct DotTile;
template <>
struct DotTile<Floats16> {  // 32 registers
  static constexpr int kRows = 6, kOthers = 4, kGroup = kOthers;
  static constexpr std::int64_t kBlock = INT64_MAX;
};
template <>
struct DotTile<Floats8> {  // 16 registers
  static constexpr int kRows = 4, kOthers = 3, kGroup = 8 * kOthers;
  static constexpr std::int64_t kBlock = 512;
};
template <>
struct DotTile<Floats4> {  // 32 registers
  static constexpr int kRows = 4, kOthers = 4, kGroup = 6 * kOthers;
  static constexpr std::int64_t kBlock = 512;
};

inline std::int64_t lesser(std::int64_t a, std::int64_t b) noexcept {
  return a < b ? a : b;
}

// Adds the products of n columns, a multiple of 16, to sums[C][R][16].
template <class V, int R, int C>
void add_products(const RowDots& op, const float* a, const float* x, std::int64_t n,
                  float* sums) noexcept {
  for (int lane = 0; lane < kDotLanes; lane += kWidth<V>) {
    V sum[C][R];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[c][r] = load<V>(sums + (c * R + r) * kDotLanes + lane);
    }
    for (std::int64_t i = lane; i < n; i += kDotLanes) {
      V row[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) row[r] = load<V>(a + r * op.a_stride + i);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const V other = load<V>(x + c * op.x_stride + i);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sum[c][r] = sum[c][r] + row[r] * other;
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) store(sums + (c * R + r) * kDotLanes + lane, sum[c][r]);
    }
  }
}

// The same for tiles of n_rows <= R and n_others <= C.
template <class V, int R, int C>
void add_products_of(std::int64_t n_rows, std::int64_t n_others, const RowDots& op, const float* a,
                     const float* x, std::int64_t n, float* sums) noexcept {
  if constexpr (R > 1) {
    if (n_rows < R) return add_products_of<V, R - 1, C>(n_rows, n_others, op, a, x, n, sums);
  }
  if constexpr (C > 1) {
    if (n_others < C) return add_products_of<V, R, C - 1>(n_rows, n_others, op, a, x, n, sums);
  }
  add_products<V, R, C>(op, a, x, n, sums);
}

inline float finish_dot(float* sums, const float* a, const float* x, std::int64_t n_tail) noexcept {
  for (std::int64_t i = 0; i < n_tail; ++i) sums[i] += a[i] * x[i];
  const Floats4 four = (load<Floats4>(sums) + load<Floats4>(sums + 8)) +
                       (load<Floats4>(sums + 4) + load<Floats4>(sums + 12));
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Fetches what will be needed, a share with every tile.
class Ahead {
 public:
  template <class Tile>
  static Ahead of(const RowDots& op) noexcept {
    const auto pieces = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
    const std::int64_t blocks = Tile::kBlock < op.n ? pieces(op.n, Tile::kBlock) : 1;
    const std::int64_t tiles = pieces(op.n_a, Tile::kRows) * pieces(op.n_x, Tile::kOthers) * blocks;
    return Ahead(op, pieces(op.next_bytes, tiles * kLine) * kLine);
  }
  void fetch() noexcept {
    for (const std::int64_t stop = lesser(at_ + share_, bytes_); at_ < stop; at_ += kLine)
      __builtin_prefetch(next_ + at_, 0, 2);
  }

 private:
  static constexpr std::int64_t kLine = 64;
  Ahead(const RowDots& op, std::int64_t share) noexcept
      : next_(op.next), bytes_(op.next_bytes), share_(share) {}

  const std::byte* next_;
  std::int64_t bytes_, share_, at_ = 0;
};

// Rows [row, row + n_rows) with the others [first, first + n_others).
template <class V>
void dot_group(const RowDots& op, std::int64_t row, std::int64_t n_rows, std::int64_t first,
               std::int64_t n_others, Ahead& ahead) noexcept {
  using Tile = DotTile<V>;
  alignas(64) float sums[Tile::kGroup * Tile::kRows * kDotLanes];
  const std::int64_t sums_of_one = n_rows * kDotLanes;
  __builtin_memset(sums, 0, static_cast<std::size_t>(n_others * sums_of_one) * sizeof(float));
  const std::int64_t whole = op.n - op.n % kDotLanes;
  const float* a = op.a + row * op.a_stride;
  const float* x = op.x + first * op.x_stride;
  for (std::int64_t at = 0; at < whole; at += lesser(Tile::kBlock, whole - at)) {
    for (std::int64_t i = 0; i < n_others; i += Tile::kOthers) {
      ahead.fetch();
      add_products_of<V, Tile::kRows, Tile::kOthers>(
          n_rows, lesser(Tile::kOthers, n_others - i), op, a + at, x + i * op.x_stride + at,
          lesser(Tile::kBlock, whole - at), sums + i * sums_of_one);
    }
  }
  for (std::int64_t i = 0; i < n_others; ++i) {
    for (std::int64_t r = 0; r < n_rows; ++r) {
      op.y[(first + i) * op.y_stride + row + r] =
          finish_dot(sums + i * sums_of_one + r * kDotLanes, a + r * op.a_stride + whole,
                     x + i * op.x_stride + whole, op.n - whole);
    }
  }
}

template <class V>
void row_dots(const RowDots& op) noexcept {
  if (op.n_a == 0 || op.n_x == 0) return;
  using Tile = DotTile<V>;
  Ahead ahead = Ahead::of<Tile>(op);
  for (std::int64_t row = 0; row < op.n_a; row += Tile::kRows) {
    for (std::int64_t i = 0; i < op.n_x; i += Tile::kGroup) {
      dot_group<V>(op, row, lesser(Tile::kRows, op.n_a - row), i, lesser(Tile::kGroup, op.n_x - i),
                   ahead);
    }
  }
}

}  // namespace
}  // namespace moeflux::cpu
