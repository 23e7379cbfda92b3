// Tiles of blocks (quant/block_tile.h) for AVX-512: their codes as bytes, their scales as floats.
// Included only by files of the fast path; everything here has internal linkage.
#pragma once

#include "backends/cpu/block_scales.h"
#include "backends/cpu/rounded_avx512.h"
#include "backends/cpu/rounded_blocks.h"

namespace moeflux::cpu {
namespace {

constexpr int kSpan = 32;  // codes of a row that are whole dwords, whatever their bits
constexpr int kSpanFours = kSpan / 4;

// The codes of a span of 16 rows, from memory: register k has four of each row.
template <int Low, int High>
struct SpanCodes {
  static constexpr int kLines = Low + High;

  static void load(const std::byte* from, __m512i (&out)[kSpanFours]) noexcept {
    constexpr int kPerDword = 8 / Low;  // fours
    constexpr int kUnits = High == 2 ? 2 : 1;
    constexpr int kUnitFours = kSpanFours / kUnits, kUnitLines = kLines / kUnits;
#pragma GCC unroll 8
    for (int k = 0; k < kSpanFours; ++k) {
      const std::byte* unit = from + k / kUnitFours * kUnitLines * 64;
      const int in_unit = k % kUnitFours;
      const __m512i line = _mm512_loadu_si512(at(unit, in_unit / kPerDword * 64));
      out[k] = field<Low>(line, in_unit % kPerDword * Low, 0);
      if constexpr (High > 0) {
        const __m512i upper = _mm512_loadu_si512(at(unit, (kUnitLines - 1) * 64));
        constexpr int kMerge = 0xF8;  // the first, or both of the others
        out[k] = _mm512_ternarylogic_epi32(out[k], moved(upper, in_unit * High, Low),
                                           _mm512_set1_epi8(((1 << High) - 1) << Low), kMerge);
      }
    }
  }

 private:
  static __m512i moved(__m512i line, int from, int to) noexcept {
    if (from > to) return _mm512_srli_epi16(line, static_cast<unsigned>(from - to));
    if (from < to) return _mm512_slli_epi16(line, static_cast<unsigned>(to - from));
    return line;
  }
  // Bits of every byte.
  template <int Bits>
  static __m512i field(__m512i line, int from, int to) noexcept {
    if constexpr (Bits == 8) {
      return line;
    } else {
      return _mm512_and_si512(moved(line, from, to),
                              _mm512_set1_epi8(static_cast<char>(((1 << Bits) - 1) << to)));
    }
  }
};

// Codes of 4 bits that choose from 16 bytes.
template <CodeTable Table>
struct SpanChosen {
  static constexpr int kLines = 4;

  static void load(const std::byte* from, __m512i (&out)[kSpanFours]) noexcept {
    SpanCodes<4, 0>::load(from, out);
    const __m512i bytes = _mm512_broadcast_i32x4(table());
#pragma GCC unroll 8
    for (__m512i& codes : out) codes = _mm512_shuffle_epi8(bytes, codes);
  }
  static __m128i table() noexcept {
    if constexpr (Table == CodeTable::E2m1)
      return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    // 128 added to each.
    return _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39,
                         -15);
  }
};

template <class Kind>
using CodesOf = std::conditional_t<Kind::kTable == CodeTable::None,
                                   SpanCodes<Kind::kLow, Kind::kHigh>, SpanChosen<Kind::kTable>>;

struct HalvesAvx512 {
  static void to_floats(const std::byte* from, float* to) noexcept {
    __m256i halves;
    std::memcpy(&halves, from, sizeof halves);
    _mm512_store_ps(to, _mm512_cvtph_ps(halves));
  }
};

template <class Codes>
void open_codes(const std::byte* from, std::int64_t cols, std::byte* to) noexcept {
  for (std::int64_t c = 0; c < cols; c += kSpan, from += Codes::kLines * 64) {
    __m512i codes[kSpanFours];
    Codes::load(from, codes);
#pragma GCC unroll 8
    for (int line = 0; line < Codes::kLines; ++line)
      _mm_prefetch(at(from, kAhead + line * 64), kAheadHint);
#pragma GCC unroll 8
    for (int k = 0; k < kSpanFours; ++k, to += 64) _mm512_store_si512(to, codes[k]);
  }
}

// Codes are asked for while what lies in front of them is taken.
[[maybe_unused]] void prefetch_codes(const BlockTile& tile) noexcept {
  for (const std::byte* line = tile.halves; line < tile.codes; line += 64)
    _mm_prefetch(at(line, kAhead), kAheadHint);
}

[[maybe_unused]] void open_scales(const RoundedMatmul& op, const BlockTile& tile,
                                  const RoundedScratch& memory) noexcept {
  const BlockType type = op.weight->format.blocks;
  BlockScales<HalvesAvx512>(tile, memory).open(type, op.layout->cols / block_shape(type).values);
}

// Scales, biases and codes.
[[maybe_unused]] void open_blocks(const RoundedMatmul& op, const BlockTile& tile,
                                  const RoundedScratch& memory) noexcept {
  const BlockType type = op.weight->format.blocks;
  const std::int64_t cols = op.layout->cols;
  if (!block_tiling(type).has_planes) return open_whole_blocks(type, tile, cols, memory);
  prefetch_codes(tile);
  open_scales(op, tile, memory);
  with_block_kind(type,
                  [&]<class Kind>() { open_codes<CodesOf<Kind>>(tile.codes, cols, memory.codes); });
}

}  // namespace
}  // namespace moeflux::cpu
