// How the numbers of a weight matrix [rows, cols] are stored, and a view of such a matrix in
// memory.
//
// A matrix has up to three planes: data, scales and biases.
//   F32, F16, BF16   data: rows x cols elements
//   Affine           data: each row a little-endian, LSB-first bit stream of cols unsigned codes of
//                    `bits` bits, up to a whole dword; scales: [rows, cols / group] of
//                    `scale_dtype`. By `zero`:
//   ... Bias         biases like the scales, w = scale * code + bias
//   ... MidCode      no biases, w = scale * (code - 2^(bits - 1))
//   ... ZeroPoint    biases: [rows, cols / group] bytes, w = scale * (code - byte)
//
//   Fp8Block         data: E4M3 bytes; scales: [ceil(rows / rows_per_scale), ceil(cols / block)] of
//                    `scale_dtype`, U8 being E8M0;             w = value * scale of its block
//   Fp4              data: as of Affine with 4 bits, each code an E2M1 number; scales:
//                    [rows, cols / group] bytes: E8M0 (scale_dtype U8) or F8E4M3; biases: none, or
//                    with `has_tensor_scale` one F32 t for the whole matrix;
//                      w = (value * scale of its group) * t, or / t with `tensor_scale_divides`,
//                    where the product in brackets is exact
//   Block            data: rows of blocks of GGUF with scales inside (quant/block_type.h); no other
//                    planes
// No plane is assumed to be aligned.
//
// The rows of an Affine, Fp4 or Block matrix may lie in interleaved tiles (quant/interleave.h): the
// same bytes in the order in which products want them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "quant/block_type.h"

namespace moeflux {

enum class WeightKind { F32, F16, BF16, Affine, Fp8Block, Fp4, Block };
enum class AffineZero { Bias, MidCode, ZeroPoint };

struct WeightFormat {
  WeightKind kind = WeightKind::F32;
  int bits = 0;  // Affine: 2, 3, 4, 5, 6 or 8
  // Columns that share a scale. Affine: 32, 64 or 128; of odd matrices any divisor of cols, which
  // products take the slow way. Fp4: 16 or 32.
  int group = 0;
  int block = 0;                   // Fp8Block: columns that share a scale
  DType scale_dtype = DType::F32;  // Affine, Fp8Block, Fp4
  bool is_interleaved = false;     // Affine, Fp4, Block
  AffineZero zero = AffineZero::Bias;
  bool has_tensor_scale = false;  // Fp4
  bool tensor_scale_divides = false;
  int block_rows = 0;                  // Fp8Block: rows that share a scale; 0: as many as columns
  BlockType blocks = BlockType::None;  // Block

  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// A block of Fp8Block with this edge takes in all rows or all columns of any matrix.
inline constexpr int kWholeBlock = 1 << 30;

// "bf16", "affine 4-bit g64", "fp8 block 128", "mxfp4", "q4_k"
std::string describe(const WeightFormat& format);

std::int64_t data_row_bytes(const WeightFormat& format, std::int64_t cols);
std::int64_t scales_per_row(const WeightFormat& format,
                            std::int64_t cols);           // 0 when there are none
std::int64_t rows_per_scale(const WeightFormat& format);  // of Fp8Block its block, else 1
// Bytes of the scales of a matrix that begins `block_row0` rows into its first block; 0 when it has
// none.
std::int64_t scale_bytes(const WeightFormat& format, std::int64_t rows, std::int64_t cols,
                         std::int64_t block_row0);
// Bytes of the biases of a matrix; 0 when it has none.
std::int64_t bias_bytes(const WeightFormat& format, std::int64_t rows, std::int64_t cols);
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
