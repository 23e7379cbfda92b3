// Products with tiles of blocks (quant/block_tile.h) for 64-bit Arm, as rounded_neon.h has them:
// codes are made the integers they stand for, so that sums start from zero. Included only by files
// of the fast path; everything here has internal linkage.
#pragma once

#include "backends/cpu/block_scales.h"
#include "backends/cpu/group_sums_neon.h"

namespace moeflux::cpu {
namespace {

// The codes of a span of 32.
template <class Kind>
struct SpanCodes {
  static constexpr int kLow = Kind::kLow, kHigh = Kind::kHigh;
  static constexpr int kLines = kLow + kHigh;
  static constexpr bool kFull = Kind::kWide;
  static constexpr bool kOpens = kHigh > 0;  // others take little more than a shift and a mask

  // The k-th four of each row.
  static int8x16_t four(const std::byte* span, int k) noexcept {
    if constexpr (kLow == 8) {
      return vreinterpretq_s8_u8(load<uint8x16_t>(span + k * kLine) ^ vdupq_n_u8(0x80));
    } else {
      constexpr int kPerDword = 8 / kLow;  // fours
      constexpr int kUnits = kHigh == 2 ? 2 : 1;
      constexpr int kUnitFours = kFours / kUnits, kUnitLines = kLines / kUnits;
      const std::byte* unit = span + k / kUnitFours * kUnitLines * kLine;
      const int in_unit = k % kUnitFours;
      uint8x16_t codes = bits<kLow>(unit + in_unit / kPerDword * kLine, in_unit % kPerDword * kLow);
      if constexpr (kHigh > 0)
        codes |= bits<kHigh>(unit + (kUnitLines - 1) * kLine, in_unit * kHigh) << kLow;
      return integers(codes);
    }
  }

 private:
  template <int Bits>
  static uint8x16_t bits(const std::byte* line, int from) noexcept {
    return (load<uint8x16_t>(line) >> from) & vdupq_n_u8((1 << Bits) - 1);
  }
  static int8x16_t integers(uint8x16_t codes) noexcept {
    const int8x16_t raw = vreinterpretq_s8_u8(codes);
    if constexpr (Kind::kTable == CodeTable::E2m1) {
      alignas(16) static constexpr std::int8_t kTwice[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                             0, -1, -2, -3, -4, -6, -8, -12};
      return vqtbl1q_s8(vld1q_s8(kTwice), codes);
    } else if constexpr (Kind::kTable == CodeTable::NonLinear) {
      alignas(16) static constexpr std::int8_t kValues[16] = {
          -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
      return vqtbl1q_s8(vld1q_s8(kValues), codes);
    } else if constexpr (Kind::kBiased) {
      return raw;
    } else {
      return vsubq_s8(raw, vdupq_n_s8(1 << (kLines - 1)));
    }
  }
};

// Integers in scratch.
template <bool Full>
struct SpanOpened {
  static constexpr int kLines = kFours;
  static constexpr bool kFull = Full;

  static int8x16_t four(const std::byte* span, int k) noexcept {
    return load<int8x16_t>(span + k * kLine);
  }
};

// Codes in scratch from which 64 is taken.
struct SpanOpenedFrom64 {
  static constexpr int kLines = kFours;
  static constexpr bool kFull = false;

  static int8x16_t four(const std::byte* span, int k) noexcept {
    return vsubq_s8(load<int8x16_t>(span + k * kLine), vdupq_n_s8(64));
  }
};

struct HalvesNeon {
  static void to_floats(const std::byte* from, float* to) noexcept {
    for (int i = 0; i < 16; i += 4)
      vst1q_f32(to + i, vcvt_f32_f16(vreinterpret_f16_u16(load<uint16x4_t>(from + 2 * i))));
  }
};

// What the groups of a span add to `parts`. g: the first of them.
template <class Dot, class Codes, int Group, bool Biased, int Digits, int N, int Blocks>
void add_block_span(const RoundedLayout& layout, const RoundedTile& tile, const std::byte* x,
                    const std::byte* span, std::int64_t c, int block,
                    float32x4_t (&parts)[Blocks][N]) noexcept {
  for (int in_span = 0; in_span < kPiece / Group; ++in_span) {
    const std::int64_t g = c / Group + in_span;
    GroupSums<Dot, Codes, Digits, N, Blocks> sums;
    for (int half = in_span; half < (Group == 16 ? in_span + 1 : 2); ++half)
      sums.add(layout, span + block * kBlock, half, x + c);
#pragma GCC unroll 4
    for (int b = 0; b < Blocks; ++b) {
      const std::int64_t at = (g * kTileRows + (block + b) * 4) * std::int64_t{sizeof(float)};
      const auto scales = load<float32x4_t>(tile.scales + at);
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i)
        parts[b][i] = vfmaq_f32(parts[b][i], vcvtq_f32_s32(sums.total(b, i)), scales);
      if constexpr (Biased) {
        const auto biases = load<float32x4_t>(tile.biases + at);
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          const auto sum = load<float>(x + i * layout.row_bytes + layout.sums_at + g * 4);
          parts[b][i] = vfmaq_n_f32(parts[b][i], biases, sum);
        }
      }
    }
  }
}

template <class Dot, class Codes, int Group, bool Biased, int Digits, int N>
void multiply_blocks(const RoundedLayout& layout, const RoundedTile& tile, const WeightFormat&,
                     const std::byte* x, float (*y)[kTileRows]) noexcept {
  constexpr int kBlocks = N == 1 ? 4 : N == 2 ? 2 : 1;  // at once: as registers allow
  float32x4_t acc[4][N] = {};
  for (std::int64_t group = 0; group < layout.n_groups; ++group) {
    const std::int64_t first = group * layout.group, left = layout.cols - first;
    const std::int64_t end = first + (left < layout.group ? left : layout.group);
    for (int block = 0; block < 4; block += kBlocks) {
      float32x4_t parts[kBlocks][N] = {};
      for (std::int64_t c = first; c < end; c += kPiece) {
        const std::byte* span = tile.codes + c / kPiece * Codes::kLines * kLine;
        add_block_span<Dot, Codes, Group, Biased, Digits, N, kBlocks>(layout, tile, x, span, c,
                                                                      block, parts);
        if (block == 0) prefetch<Codes::kLines * kLine>(span);
      }
#pragma GCC unroll 16
      for (int k = 0; k < kBlocks * N; ++k) {
        const auto x_scale =
            load<float>(x + k % N * layout.row_bytes + layout.scales_at + group * 4);
        float32x4_t& sum = acc[block + k / N][k % N];
        sum = vfmaq_n_f32(sum, parts[k / N][k % N], x_scale);
      }
    }
  }
#pragma GCC unroll 16
  for (int k = 0; k < 4 * N; ++k) vst1q_f32(y[k / 4] + k % 4 * 4, acc[k % 4][k / 4]);
}

}  // namespace
}  // namespace moeflux::cpu
