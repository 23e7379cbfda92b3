// What products of many rows of activations take (matmul*.cu).
//
// A product is cut into tiles of rows of activations by columns of results, one for each row of
// weights. Of a feed-forward the gate and the up matrix are multiplied together: columns 2 i and
// 2 i + 1 are rows i of the two, and become one hidden value.
//
// Weights are halves in products, `unit` times as large: 64 times as a rule, since those of models
// are small; what is beyond 1023 becomes infinite. Rows of activations are halves, too, each times
// a power of two that brings its largest value near the largest half.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/operands.h"

namespace moeflux::gpu {

inline constexpr int kTileDepth = 64;  // rows of halves are filled up to a multiple of it

// Weights are opened in chunks of so many columns.
inline constexpr int kOpenedChunk = 32;
// Whether chunks can be opened: odd groups go a slow way.
constexpr float unit_of(const DeviceWeight& w) {
  if (w.kind == Kind::F16) return 1;
  const bool is_large =
      w.kind == Kind::Fp4 && w.scale_type == ScaleType::E4M3 && w.has_tensor_scale == 0;
  return is_large ? 8 : 64;
}
constexpr bool opens_in_chunks(const DeviceWeight& w) {
  if (w.cols % kOpenedChunk != 0) return false;
  switch (w.kind) {
    case Kind::Affine:
    case Kind::Fp8Block:
      return w.group % kOpenedChunk == 0 && (w.group & (w.group - 1)) == 0;
    case Kind::Fp4:
      return w.group == 16 || w.group == 32;
    default:
      return true;
  }
}

// Tiles of products that open their weights, and what of them is in shared memory at a time.
inline constexpr int kProductRows = 128, kProductColumns = 128, kProductThreads = 128;
inline constexpr int kActivationStages = 3, kWeightStages = 2;
inline constexpr int kProductSharedBytes =
    (kActivationStages * kProductRows + kWeightStages * kProductColumns) * kTileDepth * 2;

// Products whose weights are opened in registers (matmul_direct.cu) take tiles of the same size,
// and 128 columns of depth at a time. Rows of activations are rounded in their order, to one half
// or to two of which the second is the rest. Weights are scale * (code - 8) + offset, where the
// offsets are multiplied with means of activations: so the products of a scale and a code are
// exact.
inline constexpr int kDirectDepth = 128;
inline constexpr int kDirectGroups = 16, kDirectGroupStride = kProductColumns + 4;
constexpr int direct_stages(int n_parts) {
  return n_parts == 1 ? 3 : 2;
}
inline constexpr int kDirectCodeStages = 2;
constexpr int direct_shared_bytes(int n_parts) {
  return direct_stages(n_parts) * n_parts * kProductRows * kTileDepth * 2 +
         kDirectCodeStages * kProductColumns * kDirectDepth / 2 +
         kDirectGroups * kDirectGroupStride * 4;
}
constexpr bool opens_in_registers(const DeviceWeight& w) {
  return w.kind == Kind::Affine && w.bits == 4 && w.cols % kDirectDepth == 0 &&
         (w.group == 32 || w.group == 64 || w.group == 128);
}
// Which column of 128 is at a place of that order.
constexpr int depth_at(int place) {
  const int unit = place / 8, lane = place % 8 / 2;
  return 32 * lane + 8 * (unit / 4) + unit % 4 + 4 * (place % 2);
}

// Those of products with opened weights.
inline constexpr int kOpenedRows = 128, kOpenedColumns = 256, kOpenedThreads = 256;
constexpr int opened_shared_bytes(int depth, int stages) {
  return stages * (kOpenedRows + kOpenedColumns) * depth * 2;
}

// A product of so few columns is one of floats, by warps that have a row each.
inline constexpr int kNarrowColumns = 4, kNarrowWeights = 8192, kNarrowRows = 32;
inline constexpr int kNarrowThreads = 256;

inline constexpr int kExactRows = 64, kExactColumns = 64, kExactThreads = 256;

inline constexpr int kWordsOfExpert = 9;  // gate, up, down: data, scales, biases (ExpertPlace)
inline constexpr std::uint64_t kAbsentPlane = ~std::uint64_t{0};

// What becomes of a gate and an up value (FfnActivation).
enum class Gate : std::int32_t { None, Silu, Gelu, ClampedSwiglu };

// Rows of one expert.
struct RowTile {
  std::int32_t expert;
  std::int32_t first, n_rows;  // in the list of rows
};

// What happens to the sums.
struct ResultParams {
  float* y;
  std::int64_t y_stride;
  const std::int32_t* rows;  // of results; null: as they come
  const float* biases[2];    // [expert][row of weights]; null: none
  Gate gate;
  float alpha, limit;
  std::int32_t n_columns;  // of the product, which is twice that of results with a gate
  std::int32_t are_pairs;  // two neighbours of y can be stored at once
  float scale;             // what sums are multiplied with
  std::int32_t unused;
};

struct ProductParams {
  ResultParams result;
  DeviceWeight weights[2];  // the second where there is a gate
  // Of experts: planes of weights[i] are those of matrix first_matrix + i, counted from `slots`.
  const std::uint64_t* places;  // null: weights have their own
  std::uint64_t slots;
  std::int32_t first_matrix;
  std::int32_t divisor;  // row of x = row of the list / divisor
  const void* x;         // halves, rows of whole tiles; floats where products are exact
  std::int64_t x_stride;
  const float* x_scales;     // what sums of a row of halves are multiplied with
  const std::int32_t* rows;  // of activations; null: as they come
  const RowTile* tiles;      // null: the rows are n, one after the other
  const std::int32_t* n_tiles;
  std::int32_t n;
  float unit;
  const std::uint16_t* x_means;  // of groups, where weights are opened in registers
  std::int64_t means_stride;
  std::int32_t n_parts;  // of rows of x, where weights are opened on the way into shared memory
  std::int32_t rows_per_tile;
};

// Rows of f32 become rows of halves, filled up with zeros to whole tiles.
struct RoundRowsParams {
  const float* x;
  std::int64_t x_stride;
  const std::int32_t* rows;  // of x; null: as they come
  std::uint16_t* out;
  std::int64_t out_stride;
  float* scales;
  std::int32_t cols;
  // Of a row: the halves, and with more than one the halves of what they leave, and the first
  // again. Products of three parts take weights, weights and what halves leave of weights.
  std::int32_t n_parts;
  // For products that open weights in registers: means of each group of columns.
  std::uint16_t* means;
  std::int64_t means_stride;
  std::int32_t group, unused;
};

// Columns [first, first + n) of a product become rows of halves, filled up as those of activations.
struct OpenParams {
  DeviceWeight weights[2];
  std::uint16_t* out;
  std::int64_t out_stride;
  std::int32_t is_gated, first, n;
  float unit;
  std::int32_t n_parts, unused;  // of a row of `out`
};

// A product with opened weights.
struct OpenedProductParams {
  ResultParams result;
  const std::uint16_t* x;
  const std::uint16_t* weights;
  std::int64_t stride;  // of both
  const float* x_scales;
  std::int32_t n, n_columns;  // of these weights
  std::int32_t first_column, unused;
};

// Pairs of a row and a slot by the expert that was chosen for them, in order.
struct ListPairsParams {
  const std::int32_t* ids;      // [pair]
  const std::uint64_t* places;  // experts that are absent there have no rows
  std::uint64_t* places_here;   // a copy of them
  std::int32_t* pairs;          // [pair]
  std::int32_t* counts;         // [expert]
  std::int32_t* begins;         // [expert]: in `pairs`
  RowTile* tiles;
  std::int32_t* n_tiles;
  std::int32_t n_pairs, n_experts;
  std::int32_t rows_per_tile, unused;
};

}  // namespace moeflux::gpu
