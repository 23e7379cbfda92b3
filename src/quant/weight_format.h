// How the numbers of a weight matrix [rows, cols] are stored, and a view of such a matrix in
// memory.
//
// A matrix has up to three planes: data, scales and biases.
//   F32, F16, BF16   data: rows x cols elements
//   Affine           data: each row a little-endian, LSB-first bit stream of cols unsigned codes of
//   `bits` bits;
//                    scales, biases: [rows, cols / group] of `scale_dtype`;  w = scale * code +
//                    bias
//   Fp8Block         data: E4M3 bytes; scales: [ceil(rows/block), ceil(cols/block)] of
//   `scale_dtype`;
//                    w = value * scale of its block
// No plane is assumed to be aligned.
//
// The rows of an affine matrix may lie in interleaved tiles (quant/interleave.h): the same bytes in
// the order in which products want them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace moeflux {

enum class WeightKind { F32, F16, BF16, Affine, Fp8Block };

struct WeightFormat {
  WeightKind kind = WeightKind::F32;
  int bits = 0;                    // Affine: 2, 3, 4, 5, 6 or 8
  int group = 0;                   // Affine: 32, 64 or 128 columns that share a scale and a bias
  int block = 0;                   // Fp8Block: edge of the square that shares a scale
  DType scale_dtype = DType::F32;  // Affine, Fp8Block
  bool is_interleaved = false;     // Affine

  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

std::string describe(const WeightFormat& format);  // "bf16", "affine 4-bit g64", "fp8 block 128"

std::int64_t data_row_bytes(const WeightFormat& format, std::int64_t cols);
std::int64_t scales_per_row(const WeightFormat& format,
                            std::int64_t cols);  // 0 when there are none
bool has_biases(const WeightFormat& format);

struct WeightView {
  WeightFormat format{};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;
  std::int64_t block_row0 =
      0;  // Fp8Block: rows of the first block that lie before this view (a slice of a matrix)

  bool empty() const { return data == nullptr; }
};

}  // namespace moeflux
