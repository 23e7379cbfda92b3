// The inner loops of attention. Keys (or queries) lie in tiles of 16: tile[c][lane], so that a
// score is a sum down a column of a tile and no sum runs across a vector. Orders of summation are
// fixed:
//
//   scores   over the values of a key in pieces of 64, each piece summed from zero in order
//   weights  over keys in 16 lanes that end in a tree of 16, 8, 4, 2, 1
//   values   over keys in order
//
// Written once with vectors of the compiler, like vector_math.h, and compiled for each instruction
// set; products are rounded before they are added, so all compute the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/vector_math.h"
#include "backends/kv_cache.h"

namespace moeflux::cpu {

inline constexpr int kScorePiece = 64;  // values whose products are summed from zero

// out[r * out_stride + 16 t + lane] = sum over c of rows[r * row_stride + c] * tiles[t][c][lane]
struct TileDots {
  const float* rows;
  std::int64_t row_stride;
  int n_rows;
  const float* tiles;  // [n_tiles][d][16]
  int n_tiles;
  int d;
  float* out;
  std::int64_t out_stride;
};

// out[j * out_stride + c] += sum over t of weights[j * weight_stride + t] * rows[t * row_stride +
// c]
struct WeightedRows {
  const float* weights;
  std::int64_t weight_stride;
  int n_queries;
  const float* rows;
  std::int64_t row_stride;
  int n_rows;
  int d;
  float* out;
  std::int64_t out_stride;
};

struct SoftmaxSum {
  float max = -__builtin_inff();  // of the scores
  float sum = 0;                  // of the weights
};

struct AttentionKernels {
  void (*tile_dots)(const TileDots& op) noexcept;
  // Scores become weights: x[t] <- exp(scale * x[t] - max) for t < n, and 0 up to the next multiple
  // of 16. n >= 1.
  SoftmaxSum (*softmax)(float* x, int n, float scale) noexcept;
  void (*weighted_rows)(const WeightedRows& op) noexcept;
  // Adds the sums of other keys, with their n weighted values, to `sum` and `values`. Sums over no
  // keys change nothing.
  void (*merge)(SoftmaxSum& sum, float* values, const SoftmaxSum& other, const float* other_values,
                std::int64_t n) noexcept;
  // Codes times scales. A row: d codes, then a bf16 scale for each 32 of them; a tile: [d][16]
  // codes, then [d / 32, rounded up][16] scales. `out` is packed.
  void (*decode_q8_rows)(const std::byte* rows, std::int64_t n, int d, float* out) noexcept;
  void (*decode_q8_tiles)(const std::byte* tiles, std::int64_t n, int d, float* out) noexcept;
};

namespace {

// ---- scores

// R rows against T tiles, each of 16 / width vectors.
template <class V, int R, int T>
void dot_block(const TileDots& op, int row, int tile) noexcept {
  constexpr int kVectors = T * kKvLanes / kWidth<V>, kPerTile = kKvLanes / kWidth<V>;
  const std::int64_t tile_size = std::int64_t{op.d} * kKvLanes;
  const float* rows = op.rows + row * op.row_stride;
  const float* tiles = op.tiles + tile * tile_size;
  V total[R][kVectors] = {};
  for (int begin = 0; begin < op.d; begin += kScorePiece) {
    const int end = begin + kScorePiece < op.d ? begin + kScorePiece : op.d;
    V sum[R][kVectors] = {};
    for (int c = begin; c < end; ++c) {
      V keys[kVectors];
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i)
        keys[i] =
            load<V>(tiles + i / kPerTile * tile_size + c * kKvLanes + i % kPerTile * kWidth<V>);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const float value = rows[r * op.row_stride + c];
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i) sum[r][i] = sum[r][i] + value * keys[i];
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) total[r][i] = total[r][i] + sum[r][i];
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < kVectors; ++i)
      store(op.out + (row + r) * op.out_stride + tile * kKvLanes + i * kWidth<V>, total[r][i]);
  }
}

template <class V, int R, int T>
void dot_rows_of_tiles(const TileDots& op, int row) noexcept {
  int tile = 0;
  for (; tile + T <= op.n_tiles; tile += T) dot_block<V, R, T>(op, row, tile);
  for (; tile < op.n_tiles; ++tile) dot_block<V, R, 1>(op, row, tile);
}

template <class V>
void tile_dots(const TileDots& op) noexcept {
  // As many sums as registers hold beside the keys of a step.
  constexpr int kRows = kWidth<V> == 16 ? 8 : kWidth<V> == 8 ? 4 : 2;
  constexpr int kTiles = kWidth<V> == 16 ? 4 : 2;  // where there are few rows
  int row = 0;
  for (; row + kRows <= op.n_rows; row += kRows) dot_rows_of_tiles<V, kRows, 1>(op, row);
  for (; row + 2 <= op.n_rows; row += 2) dot_rows_of_tiles<V, 2, kTiles>(op, row);
  for (; row < op.n_rows; ++row) dot_rows_of_tiles<V, 1, kTiles>(op, row);
}

// ---- softmax

template <class V>
SoftmaxSum softmax_row(float* x, int n, float scale) noexcept {
  constexpr int kVectors = kKvLanes / kWidth<V>;
  const int padded = (n + kKvLanes - 1) / kKvLanes * kKvLanes;
  for (int t = n; t < padded; ++t) x[t] = -__builtin_inff();
  SoftmaxSum result;
  V top = V{} + result.max;
  for (int t = 0; t < padded; t += kWidth<V>) {
    const V scores = load<V>(x + t) * scale;
    store(x + t, scores);
    top = scores > top ? scores : top;
  }
  for (int i = 0; i < kWidth<V>; ++i) result.max = top[i] > result.max ? top[i] : result.max;

  V sums[kVectors] = {};
  for (int t = 0; t < padded; t += kKvLanes) {
    for (int i = 0; i < kVectors; ++i) {
      const V weights = exp_of_negative(load<V>(x + t + i * kWidth<V>) - result.max);
      store(x + t + i * kWidth<V>, weights);
      sums[i] = sums[i] + weights;
    }
  }
  float lanes[kKvLanes];
  for (int i = 0; i < kVectors; ++i) store(lanes + i * kWidth<V>, sums[i]);
  for (int width = kKvLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  result.sum = lanes[0];
  return result;
}

// ---- values

// Queries [j, j + J), values [c, c + N vectors).
template <class V, int J, int N>
void weigh_block(const WeightedRows& op, int j, int c) noexcept {
  const float* weights = op.weights + j * op.weight_stride;
  float* out = op.out + j * op.out_stride + c;
  V sum[J][N];
  for (int q = 0; q < J; ++q) {
    for (int i = 0; i < N; ++i)
      __builtin_memcpy(&sum[q][i], out + q * op.out_stride + i * kWidth<V>, sizeof(V));
  }
  for (int t = 0; t < op.n_rows; ++t) {
    const float* row = op.rows + t * op.row_stride + c;
    V values[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) values[i] = load<V>(row + i * kWidth<V>);
#pragma GCC unroll 16
    for (int q = 0; q < J; ++q) {
      const float weight = weights[q * op.weight_stride + t];
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) sum[q][i] = sum[q][i] + weight * values[i];
    }
  }
  for (int q = 0; q < J; ++q) {
    for (int i = 0; i < N; ++i) store(out + q * op.out_stride + i * kWidth<V>, sum[q][i]);
  }
}

// All queries, J at a time, for the values [c, c + N vectors): their part of the rows stays in the
// nearest cache meanwhile.
template <class V, int J, int N>
void weigh_columns(const WeightedRows& op, int c) noexcept {
  int j = 0;
  for (; j + J <= op.n_queries; j += J) weigh_block<V, J, N>(op, j, c);
  for (; j < op.n_queries; ++j) weigh_block<V, 1, N>(op, j, c);
}

template <class V>
void weighted_rows(const WeightedRows& op) noexcept {
  constexpr int kFew = kWidth<V> == 16 ? 4 : 2;
  constexpr int kMany = 32;  // so many that rows come out of a cache
  int c = 0;
  // Where a weight can be an operand in memory, one vector of values serves many queries best.
  if (kWidth<V> == 16 && op.n_queries >= kMany) {
    for (; c + kWidth<V> <= op.d; c += kWidth<V>) weigh_columns<V, 8, 1>(op, c);
  } else if (op.n_queries >= kFew) {
    for (; c + 4 * kWidth<V> <= op.d; c += 4 * kWidth<V>) weigh_columns<V, kFew, 4>(op, c);
  } else {
    for (; c + 8 * kWidth<V> <= op.d; c += 8 * kWidth<V>) weigh_columns<V, 1, 8>(op, c);
  }
  for (; c + kWidth<V> <= op.d; c += kWidth<V>) weigh_columns<V, kFew, 1>(op, c);
  for (; c < op.d; ++c) weigh_columns<float, 1, 1>(op, c);
}

template <class V>
void merge_sums(SoftmaxSum& sum, float* values, const SoftmaxSum& other, const float* other_values,
                std::int64_t n) noexcept {
  if (other.sum == 0) return;
  const float max = other.max > sum.max ? other.max : sum.max;
  const Floats4 scales = exp_of_negative(Floats4{sum.max - max, other.max - max});
  const float a = scales[0], b = scales[1];
  sum.max = max;
  sum.sum = sum.sum * a + other.sum * b;
  std::int64_t i = 0;
  for (; i + kWidth<V> <= n; i += kWidth<V>)
    store(values + i, load<V>(values + i) * a + load<V>(other_values + i) * b);
  for (; i < n; ++i) values[i] = values[i] * a + other_values[i] * b;
}

// ---- 8-bit caches

template <class V>
struct Codes;
template <>
struct Codes<Floats4> {
  using Type = std::int8_t __attribute__((vector_size(4)));
  using Shorts = std::int16_t __attribute__((vector_size(8)));
};
template <>
struct Codes<Floats8> {
  using Type = std::int8_t __attribute__((vector_size(8)));
  using Shorts = std::int16_t __attribute__((vector_size(16)));
};
template <>
struct Codes<Floats16> {
  using Type = std::int8_t __attribute__((vector_size(16)));
  using Shorts = std::int16_t __attribute__((vector_size(32)));
};

template <class V>
V load_codes(const std::byte* codes) noexcept {
  using Ints = decltype(V{} < V{});
  typename Codes<V>::Type bytes;
  __builtin_memcpy(&bytes, codes, sizeof bytes);
  const auto shorts = __builtin_convertvector(bytes, typename Codes<V>::Shorts);  // in two steps:
  return __builtin_convertvector(__builtin_convertvector(shorts, Ints), V);       // not one by one
}

inline float load_bf16(const std::byte* x) noexcept {
  std::uint16_t bits;
  __builtin_memcpy(&bits, x, sizeof bits);
  return __builtin_bit_cast(float, std::uint32_t{bits} << 16);
}

template <class V>
void decode_q8_rows(const std::byte* rows, std::int64_t n, int d, float* out) noexcept {
  const int n_groups = (d + kKvQ8Group - 1) / kKvQ8Group;
  for (std::int64_t row = 0; row < n; ++row, out += d, rows += d + 2 * n_groups) {
    for (int group = 0; group < n_groups; ++group) {
      const float scale = load_bf16(rows + d + 2 * group);
      const int end = (group + 1) * kKvQ8Group < d ? (group + 1) * kKvQ8Group : d;
      int c = group * kKvQ8Group;
      for (; c + kWidth<V> <= end; c += kWidth<V>) store(out + c, load_codes<V>(rows + c) * scale);
      for (; c < end; ++c) out[c] = static_cast<float>(static_cast<std::int8_t>(rows[c])) * scale;
    }
  }
}

template <class V>
void decode_q8_tiles(const std::byte* tiles, std::int64_t n, int d, float* out) noexcept {
  constexpr int kVectors = kKvLanes / kWidth<V>;
  const int n_groups = (d + kKvQ8Group - 1) / kKvQ8Group;
  for (std::int64_t tile = 0; tile < n; ++tile) {
    const std::byte* scales = tiles + d * kKvLanes;
    for (int group = 0; group < n_groups; ++group, scales += 2 * kKvLanes) {
      float of_lanes[kKvLanes];
      for (int lane = 0; lane < kKvLanes; ++lane) of_lanes[lane] = load_bf16(scales + 2 * lane);
      const int end = (group + 1) * kKvQ8Group < d ? (group + 1) * kKvQ8Group : d;
      for (int c = group * kKvQ8Group; c < end; ++c) {
        for (int i = 0; i < kVectors; ++i) {
          const std::int64_t at = c * kKvLanes + i * kWidth<V>;
          store(out + at, load_codes<V>(tiles + at) * load<V>(of_lanes + i * kWidth<V>));
        }
      }
    }
    tiles = scales;
    out += std::int64_t{d} * kKvLanes;
  }
}

template <class V>
const AttentionKernels& attention_kernels() noexcept {
  static constexpr AttentionKernels kKernels{.tile_dots = tile_dots<V>,
                                             .softmax = softmax_row<V>,
                                             .weighted_rows = weighted_rows<V>,
                                             .merge = merge_sums<V>,
                                             .decode_q8_rows = decode_q8_rows<V>,
                                             .decode_q8_tiles = decode_q8_tiles<V>};
  return kKernels;
}

}  // namespace
}  // namespace moeflux::cpu
