// The fast path for AVX-512 (F, BW, DQ, VL), with the inner product left open: processors with VNNI
// have one instruction for it. Included only by the files compiled for such processors; everything
// here has internal linkage, and nothing is included that could be instantiated here and linked
// into code for other processors.
//
// Rows of weights are taken 16 at a time, and end up as the lanes of a register.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/q8.h"
#include "backends/cpu/with_format.h"

namespace moeflux::cpu {

void q8_quantize_avx512(const Q8Layout& layout, const float* x, std::byte* out) noexcept;

namespace {

constexpr int kRows = kQ8Rows;  // lanes of a register
constexpr int kBlock = Q8Layout::kBlockBytes;

// Rows are short streams that the processor does not foresee.
constexpr std::int64_t kAhead = 16 << 10;
constexpr std::int64_t kPlaneAhead = 2 << 10;

const void* at(const std::byte* base, std::int64_t offset) noexcept {
  return base + offset;
}
void* at(std::byte* base, std::int64_t offset) noexcept {
  return base + offset;
}

__mmask16 first_lanes(std::int64_t n) noexcept {
  return n >= kRows ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << n) - 1);
}
__mmask64 first_bytes(std::int64_t n) noexcept {
  return n >= kBlock ? ~__mmask64{0} : (__mmask64{1} << n) - 1;
}

// out[j] has quarter j of all four.
void transpose_quarters(const __m512i (&fours)[4], __m512i (&out)[4]) noexcept {
  const __m512i even_ab = _mm512_shuffle_i32x4(fours[0], fours[1], 0x88);
  const __m512i even_cd = _mm512_shuffle_i32x4(fours[2], fours[3], 0x88);
  const __m512i odd_ab = _mm512_shuffle_i32x4(fours[0], fours[1], 0xDD);
  const __m512i odd_cd = _mm512_shuffle_i32x4(fours[2], fours[3], 0xDD);
  out[0] = _mm512_shuffle_i32x4(even_ab, even_cd, 0x88);
  out[1] = _mm512_shuffle_i32x4(odd_ab, odd_cd, 0x88);
  out[2] = _mm512_shuffle_i32x4(even_ab, even_cd, 0xDD);
  out[3] = _mm512_shuffle_i32x4(odd_ab, odd_cd, 0xDD);
}

// Rows to columns: out[c] has dword c of all rows.
void transpose(const __m512i (&rows)[16], __m512i (&out)[16]) noexcept {
  __m512i fours[4][4];  // [k][rows 4 q ...]: in quarter j, dword 4 j + k of four rows
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const __m512i ab_low = _mm512_unpacklo_epi32(rows[4 * q], rows[4 * q + 1]);
    const __m512i ab_high = _mm512_unpackhi_epi32(rows[4 * q], rows[4 * q + 1]);
    const __m512i cd_low = _mm512_unpacklo_epi32(rows[4 * q + 2], rows[4 * q + 3]);
    const __m512i cd_high = _mm512_unpackhi_epi32(rows[4 * q + 2], rows[4 * q + 3]);
    fours[0][q] = _mm512_unpacklo_epi64(ab_low, cd_low);
    fours[1][q] = _mm512_unpackhi_epi64(ab_low, cd_low);
    fours[2][q] = _mm512_unpacklo_epi64(ab_high, cd_high);
    fours[3][q] = _mm512_unpackhi_epi64(ab_high, cd_high);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    __m512i columns[4];
    transpose_quarters(fours[k], columns);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) out[4 * j + k] = columns[j];
  }
}

// The same for 16 rows of 4 or 8 dwords, one after the other.
template <int Dwords>
void transpose_short(const std::byte* data, __m512i (&out)[16]) noexcept {
  const __m512i rows = _mm512_set_epi32(3, 2, 1, 0, 3, 2, 1, 0, 3, 2, 1, 0, 3, 2, 1, 0);
  const __m512i quarters = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
  __m512i pick =  // dword k of row r to lane 4 k + r; rows come four or two in a register
      _mm512_add_epi32(_mm512_slli_epi32(rows, Dwords == 4 ? 2 : 3), quarters);
#pragma GCC unroll 2
  for (int half = 0; half < Dwords / 4; ++half) {
    __m512i fours[4], columns[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const std::byte* four_rows = data + q * 16 * Dwords;
      const __m512i first = _mm512_loadu_si512(four_rows);
      if constexpr (Dwords == 4) {
        fours[q] = _mm512_permutexvar_epi32(pick, first);
      } else {
        fours[q] = _mm512_permutex2var_epi32(first, pick, _mm512_loadu_si512(four_rows + 64));
      }
    }
    transpose_quarters(fours, columns);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) out[4 * half + k] = columns[k];
    pick = _mm512_add_epi32(pick, _mm512_set1_epi32(4));
  }
}

// ---- weights

// Where 16 rows lie; behind the last row of a matrix, that row again.
struct RowSet {
  RowSet(const std::byte* base, std::int64_t row, std::int64_t n_rows,
         std::int64_t bytes) noexcept {
    for (int r = 0; r < kRows; ++r) {
      data[r] = base + (row + (r < n_rows ? r : n_rows - 1)) * bytes;
    }
    ahead = data[0] + (bytes * kRows > kAhead ? bytes * kRows : kAhead);
  }
  const std::byte* data[kRows];
  const std::byte* ahead;  // the same number of bytes, to be asked for while these are used
};

template <DType Type>
__m512 widen(__m512i low_words) noexcept {
  if constexpr (Type == DType::BF16) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(low_words, 16));
  } else {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(low_words));
  }
}

// Columns of scales or biases as floats.
template <DType Type>
void store_columns(const __m512i (&columns)[16], std::int64_t n_dwords, float* out) noexcept {
  for (std::int64_t k = 0; k < n_dwords; ++k) {
    if constexpr (Type == DType::F32) {
      _mm512_store_si512(out + k * kRows, columns[k]);
    } else {  // two groups in a dword; the scratch has room for the second of the last
      _mm512_store_ps(out + 2 * k * kRows, widen<Type>(columns[k]));
      _mm512_store_ps(out + (2 * k + 1) * kRows, widen<Type>(_mm512_srli_epi32(columns[k], 16)));
    }
  }
}

// Scales or biases of 16 rows as floats: out[group][row].
template <DType Type>
void load_plane(const std::byte* plane, std::int64_t row, std::int64_t n_rows,
                std::int64_t n_groups, float* out) noexcept {
  constexpr std::int64_t kWidth = Type == DType::F32 ? 4 : 2;
  const RowSet rows(plane, row, n_rows, n_groups * kWidth);
  const std::int64_t bytes = n_groups * kWidth;
  for (std::int64_t offset = 0; offset < bytes * kRows; offset += 64) {
    _mm_prefetch(at(rows.data[0], kPlaneAhead + offset), _MM_HINT_T0);
  }
  __m512i columns[16];
  if (n_rows == kRows && bytes == 16) {
    transpose_short<4>(rows.data[0], columns);
    return store_columns<Type>(columns, 4, out);
  }
  if (n_rows == kRows && bytes == 32) {
    transpose_short<8>(rows.data[0], columns);
    return store_columns<Type>(columns, 8, out);
  }
  for (std::int64_t offset = 0; offset < bytes; offset += 64) {
    const __mmask64 valid = first_bytes(bytes - offset);
    __m512i raw[16];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      raw[r] = _mm512_maskz_loadu_epi8(valid, rows.data[r] + offset);
    }
    transpose(raw, columns);
    const std::int64_t n_dwords = (bytes - offset + 3) / 4;
    store_columns<Type>(columns, n_dwords < 16 ? n_dwords : 16, out + offset / kWidth * kRows);
  }
}

// How 64 codes of 3, 5 or 6 bits, in 8 * Bits bytes, come to dwords of 4 codes: first the bytes of
// 16 codes to each quarter of a register, then those of 4 codes to each dword, at bit 0 or 4.
template <int Bits>
struct SpreadTables {
  alignas(64) std::uint16_t words[32];
  alignas(64) std::uint8_t bytes[64];
  alignas(64) std::uint32_t shifts[16];

  constexpr SpreadTables() : words(), bytes(), shifts() {
    for (int i = 0; i < 32; ++i) words[i] = static_cast<std::uint16_t>(i / 8 * Bits + i % 8);
    for (int i = 0; i < 64; ++i) {
      bytes[i] = static_cast<std::uint8_t>(i % 16 / 4 * Bits / 2 + i % 4);
    }
    for (int i = 0; i < 16; ++i) shifts[i] = static_cast<std::uint32_t>(i * Bits % 2 * 4);
  }
};

// 64 codes, one per byte, from 8 * Bits bytes of which those in `bytes` are there.
template <int Bits>
__m512i spread(const std::byte* data, __mmask64 bytes) noexcept {
  const __m512i ones = _mm512_set1_epi8(static_cast<char>((1 << Bits) - 1));
  if constexpr (Bits == 8) {
    return _mm512_maskz_loadu_epi8(bytes, data);
  } else if constexpr (Bits == 4) {
    const __m256i packed = _mm256_maskz_loadu_epi8(static_cast<__mmask32>(bytes), data);
    const __m512i words = _mm512_cvtepu8_epi16(packed);
    return _mm512_and_si512(_mm512_or_si512(words, _mm512_slli_epi16(words, 4)), ones);
  } else if constexpr (Bits == 2) {
    const __m128i packed = _mm_maskz_loadu_epi8(static_cast<__mmask16>(bytes), data);
    const __m512i four = _mm512_cvtepu8_epi32(packed);
    const __m512i two = _mm512_or_si512(four, _mm512_slli_epi32(four, 12));
    return _mm512_and_si512(_mm512_or_si512(two, _mm512_slli_epi32(two, 6)), ones);
  } else {
    static constexpr SpreadTables<Bits> kTables;
    constexpr int kChoose = 0xCA;  // bits of the second where the first has ones, else of the third
    const __m512i packed = _mm512_maskz_loadu_epi8(bytes, data);
    const __m512i quarters = _mm512_permutexvar_epi16(_mm512_load_si512(kTables.words), packed);
    const __m512i four =
        _mm512_srlv_epi32(_mm512_shuffle_epi8(quarters, _mm512_load_si512(kTables.bytes)),
                          _mm512_load_si512(kTables.shifts));
    const __m512i two = _mm512_ternarylogic_epi32(_mm512_set1_epi32(0xFFFF), four,
                                                  _mm512_slli_epi32(four, 16 - 2 * Bits), kChoose);
    const __m512i one = _mm512_ternarylogic_epi32(_mm512_set1_epi16(0xFF), two,
                                                  _mm512_slli_epi16(two, 8 - Bits), kChoose);
    return _mm512_and_si512(one, ones);
  }
}

template <int Bits>
__mmask64 bytes_of_64(std::int64_t codes_left) noexcept {
  return first_bytes((codes_left < 64 ? codes_left : 64) * Bits / 8);
}

// The memory a call works in.
struct Scratch {
  Scratch(const Q8Matmul& op) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(op.scratch);
    scales = op.scratch + (64 - address % 64) % 64 / sizeof(float);
    biases = scales + floats(*op.layout);
    codes = static_cast<std::byte*>(static_cast<void*>(biases + floats(*op.layout)));
  }
  static std::int64_t floats(const Q8Layout& layout) noexcept {  // of a plane
    return (layout.n_groups + 1) / 2 * 2 * kRows;
  }
  float* scales;  // [group][16 rows]
  float* biases;
  std::byte* codes;  // of 16 rows, one per byte
};

void load_planes(const WeightView& w, std::int64_t row, std::int64_t n_rows, std::int64_t n_groups,
                 const Scratch& out) noexcept {
  const auto load = w.format.scale_dtype == DType::BF16  ? load_plane<DType::BF16>
                    : w.format.scale_dtype == DType::F16 ? load_plane<DType::F16>
                                                         : load_plane<DType::F32>;
  load(w.scales, row, n_rows, n_groups, out.scales);
  load(w.biases, row, n_rows, n_groups, out.biases);
}

float* row_of_y(const Q8Matmul& op, std::int64_t i, std::int64_t row) noexcept {
  const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i] : i;
  return op.y + target * op.y_stride + row - op.row;
}

// acc of 16 rows, one group further.
__m512 add_group(__m512 acc, __m512i sums, const Scratch& weights, std::int64_t g, float x_scale,
                 float x_sum) noexcept {
  const __m512 scale =
      _mm512_mul_ps(_mm512_load_ps(weights.scales + g * kRows), _mm512_set1_ps(x_scale));
  acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scale, acc);
  return _mm512_fmadd_ps(_mm512_load_ps(weights.biases + g * kRows), _mm512_set1_ps(x_sum), acc);
}

}  // namespace
}  // namespace moeflux::cpu
