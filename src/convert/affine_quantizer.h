// Quantizes rows of floats to affine groups (quant/weight_format.h): w = scale * code + bias, scale
// and bias stored as BF16.
//
// Codes are always chosen against the scale and bias as they are stored, and those are searched
// for: each group tries several clipped ranges, refines each by least squares, and keeps what
// decodes closest to the original.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moeflux {

std::uint16_t float_to_bf16(float value);  // to nearest, ties to even

struct AffineRow {
  std::byte* data = nullptr;    // [cols * bits / 8]
  std::byte* scales = nullptr;  // [cols / group] of BF16
  std::byte* biases = nullptr;  // the same
};

// Sums over the numbers of a matrix: how far the decoded ones are from the originals.
struct SquaredError {
  double error = 0;
  double norm = 0;  // of the originals

  void add(const SquaredError& other) {
    error += other.error;
    norm += other.norm;
  }
  double relative() const;  // root mean square error over root mean square
};

// bits: 2, 3, 4, 5, 6 or 8; group: 32, 64 or 128, dividing the row. The row must be finite.
SquaredError quantize_affine_row(std::span<const float> row, int bits, int group, AffineRow out);

}  // namespace moeflux
