// What all products of many rows share: where their tiles lie, and what happens to the sums.
#pragma once

#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/products.h"
#include "base/portable_math.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

template <class Params>
GPU_INLINE RowTile row_tile(const Params& p, int index, int rows_per_tile) {
  if (p.tiles != nullptr) return index < *p.n_tiles ? p.tiles[index] : RowTile{0, 0, 0};
  const int first = index * rows_per_tile, left = p.n - first;
  return {0, first, left < rows_per_tile ? left : rows_per_tile};
}

// Weights of an expert's matrix, or those that came with their planes.
GPU_INLINE DeviceWeight weight_of(const ProductParams& p, int matrix, int expert) {
  DeviceWeight w = p.weights[matrix];
  if (p.places == nullptr) return w;
  const std::uint64_t* planes =
      p.places + std::int64_t{expert} * kWordsOfExpert + 3 * (p.first_matrix + matrix);
  const auto plane = [&](int i) {
    return planes[i] == kAbsentPlane ? nullptr
                                     : reinterpret_cast<const unsigned char*>(p.slots + planes[i]);
  };
  w.data = plane(0);
  w.scales = plane(1);
  w.biases = plane(2);
  return w;
}

template <bool kIsExact>
inline float gate_value(const ResultParams& r, float gate, float up) {
  const auto sigmoid_of = [](float x) {
    return kIsExact ? portable::sigmoid(x) : inverse(1.0f + exp(-x));
  };
  switch (r.gate) {
    case Gate::Silu:
      return gate * sigmoid_of(gate) * up;
    case Gate::Gelu: {  // 0.5 (1 + tanh(u)) is sigmoid(2 u)
      const float u = 0.7978845608028654f * (gate + 0.044715f * gate * gate * gate);
      return gate * sigmoid_of(2 * u) * up;
    }
    default: {
      // What is not a number stays so.
      const float bounded = gate > r.limit ? r.limit : gate;
      const float linear = up > r.limit ? r.limit : up < -r.limit ? -r.limit : up;
      return bounded * sigmoid_of(r.alpha * bounded) * (linear + 1);
    }
  }
}

// Stores columns `column` (which is even) and the next of a row of sums.
template <bool kIsExact>
inline void store_result(const ResultParams& r, float* row, int expert, int column, float first,
                         float second) {
  if (column >= r.n_columns) return;
  if (r.gate != Gate::None) {
    const int at = column / 2;
    const std::int64_t bias = std::int64_t{expert} * (r.n_columns / 2) + at;
    if (r.biases[0] != nullptr) first += r.biases[0][bias];
    if (r.biases[1] != nullptr) second += r.biases[1][bias];
    row[at] = gate_value<kIsExact>(r, first, second);
    return;
  }
  const bool are_two = column + 1 < r.n_columns;
  if (r.biases[0] != nullptr) {
    const float* bias = r.biases[0] + std::int64_t{expert} * r.n_columns + column;
    first += bias[0];
    if (are_two) second += bias[1];
  }
  if (are_two && r.are_pairs) {
    *reinterpret_cast<Pair*>(row + column) = {bits_of(first), bits_of(second)};
  } else {
    row[column] = first;
    if (are_two) row[column + 1] = second;
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
