// How the bytes that a checkpoint stores for a matrix become rows of its format, where they are not
// that already: rows picked out of a larger matrix, matrices stored transposed, codes packed along
// the outputs. Exact: not a value changes. Where the numbers of a released format lie is said here
// and nowhere else.
//
// R and C are rows and columns of the stored matrix, b the bits of a code, n its groups of
// `stored_group` columns (the last may be shorter), in dwords that hold the lowest bits first.
//   Rows         as the format says; Fp8Block with blocks of `stored_block_rows`
//   Transposed   data: [C, R] floats
//   Gptq         data: [C * b / 32, R] dwords along C; scales: [n, R]; zero points:
//                [n, R * b / 32] dwords along R, to which zero_offset is added. Where that does not
//                fit into a byte the format has biases instead, F32 like its scales: exact for
//                scales of 16 bits, which stored_scale_dtype tells
//   Awq          data: [C, R / 8] dwords along R; scales: [n, R]; zero points: [n, R / 8]; the
//   codes
//                of a dword stand for its rows 0, 2, 4, 6, 1, 3, 5, 7
//   PackedRows   data: as the format says; scales: [R, n]; zero points, if any:
//                [R * b / 32, n] dwords along R
//   SignedBytes  data: [R, C] signed bytes; scales: [R, n]; zero points, if any: [R, n] signed
//   bytes
//   Nvfp4Blocks  data: rows of blocks of NVFP4 as GGUF has them, scales inside; biases: of Fp4
// With has_one_scale there is a single scale, and a single zero point of SignedBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "quant/weight_format.h"

namespace moeflux {

enum class Packing : std::uint8_t {
  Rows,
  Transposed,
  Gptq,
  Awq,
  PackedRows,
  SignedBytes,
  Nvfp4Blocks,
};
std::string_view packing_name(Packing packing);  // "gptq"; empty for Rows

// Rows [first + i * stride, + take) for i = 0 .. count - 1.
struct RowRun {
  std::int64_t first = 0;
  std::int64_t take = 1;
  std::int64_t stride = 1;
  std::int64_t count = 1;
};
using RowRuns = std::vector<RowRun>;

std::int64_t n_rows_of(const RowRuns& runs);
// Those of `outer` that `inner` picks, by their place in it.
RowRuns compose(const RowRuns& outer, const RowRuns& inner);

struct Repack {
  Packing packing = Packing::Rows;
  std::int64_t stored_rows = 0;
  std::int64_t stored_group = 0;          // Gptq and what follows
  std::int64_t stored_block_rows = 0;     // Rows of Fp8Block
  int zero_offset = 0;                    // Gptq
  bool has_one_scale = false;             // PackedRows and SignedBytes
  DType stored_scale_dtype = DType::F16;  // Gptq with biases
  RowRuns rows = {};  // of the stored matrix, in the order in which they are wanted

  // The same of the rows that `picked` picks out of these.
  Repack pick(const RowRuns& picked) const;
};

struct PlaneBytes {
  std::uint64_t data = 0, scales = 0, biases = 0;

  friend bool operator==(const PlaneBytes&, const PlaneBytes&) = default;
};
// What repack_rows() reads, and of rows of a format.
PlaneBytes stored_bytes(const Repack& how, const WeightFormat& format, std::int64_t cols);
PlaneBytes plane_bytes(const WeightFormat& format, std::int64_t rows, std::int64_t cols,
                       std::int64_t block_row0 = 0);

struct StoredPlanes {
  const std::byte *data = nullptr, *scales = nullptr, *biases = nullptr;
};

// Writes rows [begin, end) of the planes of `to`, which must be writable, in rows and apart from
// `from`. Several threads may write rows of a matrix. False when a zero point does not fit into a
// byte.
[[nodiscard]] bool repack_rows(const Repack& how, const StoredPlanes& from, const WeightView& to,
                               std::int64_t begin, std::int64_t end);

}  // namespace moeflux
