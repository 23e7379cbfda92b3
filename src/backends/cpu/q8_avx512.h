// The fast path for AVX-512 (F, BW, DQ, VL), with the inner product left open: processors with VNNI
// have one instruction for it. Included only by the files compiled for such processors; everything
// here has internal linkage, and nothing is included that could be instantiated here and linked
// into code for other processors.
//
// Products run in tiles of 4 rows of weights and 4 of activations. For a chunk of 16 groups, the
// products of scales are computed at once and dealt to the lanes of each block.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/q8.h"

namespace moeflux::cpu {

void q8_quantize_avx512(const Q8Layout& layout, const float* x, std::byte* out,
                        std::byte* rest) noexcept;

namespace {

constexpr int kLanes = Q8Layout::kLanes;
constexpr int kBlock = Q8Layout::kBlockBytes;
constexpr int kMaxRows = 4, kMaxTokens = 4;
constexpr std::int64_t kUnpackFrom = 8;          // tokens for which codes are spread to bytes first
constexpr std::int64_t kCacheBytes = 512 << 10;  // of activations that one pass goes over

// The rows of a tile are short streams that the processor does not foresee.
constexpr std::int64_t kAhead = 16 << 10;

const void* at(const std::byte* base, std::int64_t offset) noexcept {
  return base + offset;
}
void* at(std::byte* base, std::int64_t offset) noexcept {
  return base + offset;
}

__mmask16 first_lanes(std::int64_t n) noexcept {
  return n >= kLanes ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << n) - 1);
}
__mmask64 first_bytes(std::int64_t n) noexcept {
  return n >= kBlock ? ~__mmask64{0} : (__mmask64{1} << n) - 1;
}

// ---- weights

// Scales or biases of a row as floats, then zeros to a multiple of 16.
void load_plane(const WeightView& w, const std::byte* plane, std::int64_t row,
                std::int64_t n_groups, float* out) noexcept {
  const bool wide = w.format.scale_dtype == DType::F32;
  const std::byte* from = plane + row * n_groups * (wide ? 4 : 2);
  for (std::int64_t g = 0; g < n_groups; g += kLanes) {
    const __mmask16 lanes = first_lanes(n_groups - g);
    if (wide) {
      _mm512_store_ps(out + g, _mm512_maskz_loadu_ps(lanes, from + g * 4));
      continue;
    }
    const __m256i raw = _mm256_maskz_loadu_epi16(lanes, from + g * 2);
    _mm512_store_ps(out + g,
                    w.format.scale_dtype == DType::F16
                        ? _mm512_cvtph_ps(raw)
                        : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16)));
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

// Codes of 3, 5 or 6 bits, one per byte; zeros after the last.
template <int Bits>
void spread_odd(const std::byte* data, std::int64_t cols, std::byte* out) noexcept {
  static constexpr SpreadTables<Bits> kTables;
  const __m512i words = _mm512_load_si512(kTables.words), bytes = _mm512_load_si512(kTables.bytes);
  const __m512i shifts = _mm512_load_si512(kTables.shifts);
  const __m512i low_word = _mm512_set1_epi32(0xFFFF), low_byte = _mm512_set1_epi16(0xFF);
  constexpr int kChoose = 0xCA;  // bits of the second where the first has ones, else of the third
  for (std::int64_t i = 0; i < cols; i += 64) {
    const std::int64_t left = (cols - i) * Bits / 8;
    _mm_prefetch(at(data, i * Bits / 8 + kAhead), _MM_HINT_T1);
    const __m512i packed = _mm512_maskz_loadu_epi8(first_bytes(left < 8 * Bits ? left : 8 * Bits),
                                                   data + i * Bits / 8);
    const __m512i quarters = _mm512_permutexvar_epi16(words, packed);
    const __m512i four = _mm512_srlv_epi32(_mm512_shuffle_epi8(quarters, bytes), shifts);
    const __m512i two =
        _mm512_ternarylogic_epi32(low_word, four, _mm512_slli_epi32(four, 16 - 2 * Bits), kChoose);
    const __m512i one =
        _mm512_ternarylogic_epi32(low_byte, two, _mm512_slli_epi16(two, 8 - Bits), kChoose);
    _mm512_store_si512(at(out, i), _mm512_and_si512(one, _mm512_set1_epi8((1 << Bits) - 1)));
  }
}

template <int Bits>
__m512i codes_of(__m512i packed, int step) noexcept {
  if constexpr (Bits == 8) {
    return packed;
  } else {
    const __m512i mask = _mm512_set1_epi8((1 << Bits) - 1);
    return _mm512_and_si512(_mm512_srli_epi16(packed, static_cast<unsigned>(step * Bits)), mask);
  }
}

// Codes of 2 or 4 bits as [block][step][byte]; zeros after the last.
template <int Bits>
void spread_even(const std::byte* data, const Q8Layout& layout, std::byte* out) noexcept {
  constexpr int kSteps = 8 / Bits;
  const std::int64_t row_bytes = layout.cols / kSteps;
  for (std::int64_t b = 0; b < layout.n_blocks; ++b) {
    const __m512i packed =
        _mm512_maskz_loadu_epi8(first_bytes(row_bytes - b * kBlock), data + b * kBlock);
    for (int step = 0; step < kSteps; ++step) {
      _mm512_store_si512(at(out, (b * kSteps + step) * kBlock), codes_of<Bits>(packed, step));
    }
  }
}

void spread_row(const std::byte* data, int bits, const Q8Layout& layout, std::byte* out) noexcept {
  switch (bits) {
    case 2:
      return spread_even<2>(data, layout, out);
    case 3:
      return spread_odd<3>(data, layout.cols, out);
    case 4:
      return spread_even<4>(data, layout, out);
    case 5:
      return spread_odd<5>(data, layout.cols, out);
    default:
      return spread_odd<6>(data, layout.cols, out);
  }
}

struct RowBlock {
  const std::byte* data[kMaxRows];
  const float* scales[kMaxRows];
  const float* biases[kMaxRows];
};

// ---- products

// The tree of the reference: 8, 4, 2, 1 lanes. Sums of four rows at once.
__m128 sum_lanes(__m512 a, __m512 b, __m512 c, __m512 d) noexcept {
  const __m512 ab =
      _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  const __m512 cd =
      _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
  const __m512 four =
      _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
  const __m512 two = _mm512_add_ps(four, _mm512_permute_ps(four, 0x4E));
  const __m512 one = _mm512_add_ps(two, _mm512_permute_ps(two, 0xB1));
  const __m512i rows = _mm512_castsi128_si512(_mm_set_epi32(12, 8, 4, 0));
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(rows, one));
}

// N rows of activations with R rows of weights: y[i][r]. Spread: the codes are bytes already.
template <class Dot, int Bits, bool Spread, int R, int N>
void tile(const Q8Layout& layout, const RowBlock& rows, const std::byte* x,
          float* const* y) noexcept {
  constexpr int kSteps = 8 / Bits;
  const std::int64_t row_bytes = layout.cols / kSteps;
  const auto shift =
      static_cast<unsigned>(__builtin_ctz(static_cast<unsigned>(layout.group / (4 * kSteps))));
  __m512 acc[R][N];  // in registers, as long as every loop over r and i is unrolled
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) acc[r][i] = _mm512_setzero_ps();
  }
  alignas(64) float products[R][N][kLanes];
  __m512i lane = _mm512_setzero_si512();  // counted from the begin of the chunk

  const auto block = [&](std::int64_t b, __mmask64 bytes) __attribute__((always_inline)) {
    // The products stay in memory: the registers are needed for sums and codes.
    if (N > 1) asm volatile("" : "+m"(products));
    const __m512i group_of_lane = _mm512_srl_epi32(lane, _mm_cvtsi32_si128(int(shift)));
    lane = _mm512_add_epi32(lane, _mm512_set1_epi32(kLanes));
    __m512i codes[R][kSteps];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      if (N == 1 && !Spread) _mm_prefetch(at(rows.data[r], b * kBlock + kAhead), _MM_HINT_T1);
#pragma GCC unroll 4
      for (int step = 0; step < kSteps; ++step) {
        codes[r][step] =
            Spread
                ? _mm512_load_si512(at(rows.data[r], (b * kSteps + step) * kBlock))
                : codes_of<Bits>(_mm512_maskz_loadu_epi8(bytes, rows.data[r] + b * kBlock), step);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      __m512i xi[kSteps];
#pragma GCC unroll 4
      for (int step = 0; step < kSteps; ++step) {
        xi[step] = _mm512_load_si512(at(x, i * layout.row_bytes + (b * kSteps + step) * kBlock));
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m512 scale = _mm512_permutexvar_ps(group_of_lane, _mm512_load_ps(products[r][i]));
        const __m512 sum = _mm512_cvtepi32_ps(Dot::template lane_sums<kSteps>(codes[r], xi));
        acc[r][i] = _mm512_fmadd_ps(sum, scale, acc[r][i]);
      }
    }
  };
  const std::int64_t n_whole = row_bytes / kBlock;
  for (std::int64_t c = 0, b = 0; c < layout.n_chunks(); ++c) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m512 scales = _mm512_load_ps(rows.scales[r] + c * kLanes);
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        const __m512 x_scales =
            _mm512_load_ps(at(x, i * layout.row_bytes + layout.scales_at + c * kLanes * 4));
        _mm512_store_ps(products[r][i], _mm512_mul_ps(scales, x_scales));
      }
    }
    lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const std::int64_t chunk_end = b + layout.chunk_blocks();
    const std::int64_t end = chunk_end < n_whole ? chunk_end : n_whole;
    for (; b < end; ++b) block(b, ~__mmask64{0});
    if (b < chunk_end && b < layout.n_blocks) block(b, first_bytes(row_bytes - b * kBlock));
  }

#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    const std::byte* sums = x + i * layout.row_bytes + layout.sums_at;
    for (std::int64_t g = 0; g < layout.n_groups; g += kLanes) {
      const __m512 x_sums = _mm512_load_ps(at(sums, g * 4));
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        acc[r][i] = _mm512_fmadd_ps(_mm512_load_ps(rows.biases[r] + g), x_sums, acc[r][i]);
      }
    }
    if constexpr (R == 4) {
      _mm_storeu_ps(y[i], sum_lanes(acc[0][i], acc[1][i], acc[2][i], acc[3][i]));
    } else {
      const __m512 none = _mm512_setzero_ps();
      *y[i] = _mm_cvtss_f32(sum_lanes(acc[0][i], none, none, none));
    }
  }
}

template <class Dot, int Bits, bool Spread, int R>
void tokens_of(const Q8Matmul& op, const RowBlock& rows, std::int64_t first_row, std::int64_t begin,
               std::int64_t end) noexcept {
  float* y[kMaxTokens];
  for (std::int64_t i = begin; i < end; i += kMaxTokens) {
    const std::int64_t n = end - i < kMaxTokens ? end - i : kMaxTokens;
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i + k] : i + k;
      y[k] = op.y + target * op.y_stride + first_row - op.row;
    }
    const std::byte* x = op.x + i * op.layout->row_bytes;
    if (n == kMaxTokens) {
      tile<Dot, Bits, Spread, R, kMaxTokens>(*op.layout, rows, x, y);
    } else if (n == 3) {
      tile<Dot, Bits, Spread, R, 3>(*op.layout, rows, x, y);
    } else if (n == 2) {
      tile<Dot, Bits, Spread, R, 2>(*op.layout, rows, x, y);
    } else {
      tile<Dot, Bits, Spread, R, 1>(*op.layout, rows, x, y);
    }
  }
}

// Rows [row, row + R) with activations [begin, end).
template <class Dot, int R>
void rows_of(const Q8Matmul& op, std::int64_t row, std::int64_t begin, std::int64_t end) noexcept {
  const Q8Layout& layout = *op.layout;
  const WeightView& w = *op.weight;
  const int bits = w.format.bits;
  const bool even = bits == 2 || bits == 4;
  const bool spread = even ? end - begin >= kUnpackFrom : bits != 8;
  const std::int64_t plane_floats = layout.n_chunks() * kLanes;
  const std::int64_t bytes = layout.n_blocks * layout.block_codes();
  const auto address = reinterpret_cast<std::uintptr_t>(op.scratch);
  float* planes = op.scratch + (64 - address % 64) % 64 / sizeof(float);
  auto* codes = static_cast<std::byte*>(static_cast<void*>(planes + 2 * kMaxRows * plane_floats));
  RowBlock rows;
  for (int r = 0; r < R; ++r, planes += 2 * plane_floats, codes += bytes) {
    load_plane(w, w.scales, row + r, layout.n_groups, planes);
    load_plane(w, w.biases, row + r, layout.n_groups, planes + plane_floats);
    const std::byte* data = w.data + (row + r) * (layout.cols * bits / 8);
    if (spread) spread_row(data, bits, layout, codes);
    rows.scales[r] = planes;
    rows.biases[r] = planes + plane_floats;
    rows.data[r] = spread ? codes : data;
  }
  if (!even) return tokens_of<Dot, 8, false, R>(op, rows, row, begin, end);
  if (bits == 4) {
    return spread ? tokens_of<Dot, 4, true, R>(op, rows, row, begin, end)
                  : tokens_of<Dot, 4, false, R>(op, rows, row, begin, end);
  }
  return spread ? tokens_of<Dot, 2, true, R>(op, rows, row, begin, end)
                : tokens_of<Dot, 2, false, R>(op, rows, row, begin, end);
}

template <class Dot>
void matmul(const Q8Matmul& op) noexcept {
  const std::int64_t fit = kCacheBytes / op.layout->row_bytes / kMaxTokens * kMaxTokens;
  const std::int64_t step = fit > kMaxTokens ? fit : kMaxTokens;
  const std::int64_t last = op.row + op.n_rows;
  for (std::int64_t begin = 0; begin < op.n; begin += step) {
    const std::int64_t end = begin + step < op.n ? begin + step : op.n;
    std::int64_t row = op.row;
    for (; row + kMaxRows <= last; row += kMaxRows) rows_of<Dot, kMaxRows>(op, row, begin, end);
    for (; row < last; ++row) rows_of<Dot, 1>(op, row, begin, end);
  }
}

}  // namespace
}  // namespace moeflux::cpu
