// The fast path for 64-bit Arm, products with tiles (quant/interleave.h), with the inner products
// left open: many processors have an instruction for products of bytes. Included only by the files
// compiled for such processors; everything here has internal linkage, and nothing is included that
// could be instantiated here and linked into code for other processors.
//
// Four rows of a tile, a block, are the lanes of a register. A Dot has, for signed bytes w (codes)
// and x (digits of activations):
//
//   Sums                    of a block
//   add<Full>(sums, w, x)   adds products with 16 digits; w[j] has codes 4 j to 4 j + 3 of each row
//   total(sums)             one lane per row
//
// Full: codes may have any value of a byte; else they have at most 6 bits. Codes of 8 bits are made
// signed by taking 128 from them, and 128 times the sum of the codes of the activations is added to
// the sum of products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <arm_neon.h>

#include "backends/cpu/group_sums_neon.h"
#include "backends/cpu/rounded_blocks_neon.h"

namespace moeflux::cpu {

void rounded_quantize_neon(const RoundedLayout& layout, const float* x, std::byte* out) noexcept;

namespace {

// ---- codes of a block as bytes

// The codes of a tile.
template <int Bits>
struct Packed {
  static constexpr int kPieceFours = kFours;
  static constexpr int kPieceBytes = Bits * kLine;
  static constexpr bool kFull = Bits == 8;

  // The k-th four of each row of a piece, in the order of RoundedLayout::place().
  static int8x16_t four(const std::byte* piece, int k) noexcept {
    if constexpr (Bits == 8) {
      return vreinterpretq_s8_u8(load<uint8x16_t>(piece + k * kLine) ^ vdupq_n_u8(0x80));
    } else if constexpr (Bits == 2 || Bits == 4) {
      constexpr int kSteps = 8 / Bits;
      const auto dword = load<uint8x16_t>(piece + k / kSteps * kLine);
      return vreinterpretq_s8_u8((dword >> k % kSteps * Bits) & vdupq_n_u8((1 << Bits) - 1));
    } else {
      const int bit = k * 4 * Bits, shift = bit % 32;
      const std::byte* from = piece + bit / 32 * kLine;
      uint32x4_t codes = load<uint32x4_t>(from) >> shift;
      if (shift + 4 * Bits > 32) codes |= load<uint32x4_t>(from + kLine) << (32 - shift);
      return spread(codes);
    }
  }

 private:
  // Four codes of a lane: two to each half of it, then one to each byte.
  static int8x16_t spread(uint32x4_t codes) noexcept {
    const uint16x8_t two =
        vreinterpretq_u16_u32(vsliq_n_u32(codes, vshrq_n_u32(codes, 2 * Bits), 16));
    const uint8x16_t one = vreinterpretq_u8_u16(vsliq_n_u16(two, vshrq_n_u16(two, Bits), 8));
    return vreinterpretq_s8_u8(one & vdupq_n_u8((1 << Bits) - 1));
  }
};

// Centered weights as the integers they are. A piece is half as long as others.
template <class Integers>
struct Centered {
  static constexpr int kPieceFours = kFours / 2;
  static constexpr int kPieceBytes = Packed<4>::kPieceBytes / 2;
  static constexpr bool kFull = false;

  static int8x16_t four(const std::byte* piece, int k) noexcept {
    return Integers::of(Packed<4>::four(piece, k));
  }
};
struct IntegersFp4 {  // E2M1 numbers, doubled
  static int8x16_t of(int8x16_t codes) noexcept {
    alignas(16) static constexpr std::int8_t kDoubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                             0, -1, -2, -3, -4, -6, -8, -12};
    return vqtbl1q_s8(vld1q_s8(kDoubled), vreinterpretq_u8_s8(codes));
  }
};
struct IntegersInt4 {
  static int8x16_t of(int8x16_t codes) noexcept { return vsubq_s8(codes, vdupq_n_s8(8)); }
};

// The same as bytes in scratch.
template <class Codes>
struct Opened {
  static constexpr int kPieceFours = Codes::kPieceFours;
  static constexpr int kPieceBytes = kPieceFours * kLine;
  static constexpr bool kFull = Codes::kFull;

  static int8x16_t four(const std::byte* piece, int k) noexcept {
    return load<int8x16_t>(piece + k * kLine);
  }
};

template <class Codes>
void open_tile(const std::byte* from, std::int64_t cols, std::byte* to) noexcept {
  constexpr int kPieceFours = Codes::kPieceFours;
  for (std::int64_t c = 0; c < cols; c += 4 * kPieceFours, from += Codes::kPieceBytes) {
    prefetch<Codes::kPieceBytes>(from);
    for (int block = 0; block < kLine; block += kBlock) {
#pragma GCC unroll 8
      for (int k = 0; k < kPieceFours; ++k) {
        store(to + (c / 4 + k) * kLine + block, Codes::four(from + block, k));
      }
    }
  }
}

// E8M0: the bits of an exponent; that of 2^-127 is one of subnormal numbers. NaN becomes infinite.
float32x4_t load_e8m0(const std::byte* bytes) noexcept {
  const uint8x8_t codes = vreinterpret_u8_u32(vdup_n_u32(load<std::uint32_t>(bytes)));
  const uint32x4_t exponents = vshlq_n_u32(vmovl_u16(vget_low_u16(vmovl_u8(codes))), 23);
  return vreinterpretq_f32_u32(vmaxq_u32(exponents, vdupq_n_u32(0x00400000)));
}

// E4M3, as a half float of the same bits: 256 times too small.
float32x4_t load_e4m3(const std::byte* bytes) noexcept {
  const int8x8_t codes = vreinterpret_s8_u32(vdup_n_u32(load<std::uint32_t>(bytes)));
  const uint16x8_t wide = vreinterpretq_u16_s16(vshll_n_s8(codes, 7));
  const uint16x4_t halves = vget_low_u16(vandq_u16(wide, vdupq_n_u16(0xBF80)));
  return vcvt_f32_f16(vreinterpret_f16_u16(halves));
}

// Scales or biases of group g, of a block.
float32x4_t load_scales(DType dtype, const std::byte* plane, std::int64_t g, int block) noexcept {
  const std::int64_t first = g * kTileRows + block * 4;
  if (dtype == DType::U8) return load_e8m0(plane + first);
  if (dtype == DType::F8E4M3) return load_e4m3(plane + first);
  if (dtype == DType::F32) return load<float32x4_t>(plane + first * 4);
  const auto halves = load<uint16x4_t>(plane + first * 2);
  if (dtype == DType::F16) return vcvt_f32_f16(vreinterpret_f16_u16(halves));
  return vreinterpretq_f32_u32(vshll_n_u16(halves, 16));
}

// Of group g, which has these scales.
float32x4_t load_biases(const WeightFormat& format, const RoundedTile& tile, std::int64_t g,
                        int block, float32x4_t scales) noexcept {
  if (format.zero == AffineZero::Bias)
    return load_scales(format.scale_dtype, tile.biases, g, block);
  int32x4_t zeros = vdupq_n_s32(1 << (format.bits - 1));
  if (format.zero == AffineZero::ZeroPoint) {
    const auto four = load<std::uint32_t>(tile.biases + g * kTileRows + block * 4);
    const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(four));
    zeros = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
  }
  return vmulq_f32(scales, vcvtq_f32_s32(vnegq_s32(zeros)));
}

// ---- products

// 128 times the sum of the codes of a group of activations.
template <int Digits>
int32x4_t correction(const RoundedLayout& layout, const std::byte* x) noexcept {
  int sum = 0;
  for (int d = 0; d < Digits; ++d, x += layout.low_at) {
    int32x4_t lanes = vdupq_n_s32(0);
    for (int c = 0; c < layout.group; c += 16) {
      lanes = vpadalq_s16(lanes, vpaddlq_s8(load<int8x16_t>(x + c)));
    }
    sum = sum * 256 + vaddvq_s32(lanes);
  }
  return vdupq_n_s32(128 * sum);
}

// One group further, as rounded.h says.
float32x4_t add_group(const RoundedLayout& layout, float32x4_t acc, int32x4_t sums,
                      float32x4_t scales, float32x4_t biases, const std::byte* x,
                      std::int64_t g) noexcept {
  const auto x_scale = load<float>(x + layout.scales_at + g * 4);
  const auto x_sum = load<float>(x + layout.sums_at + g * 4);
  acc = vfmaq_f32(acc, vcvtq_f32_s32(sums), vmulq_n_f32(scales, x_scale));
  return vfmaq_n_f32(acc, biases, x_sum);
}

template <class Dot, class Codes, int Digits, int N>
void multiply(const RoundedLayout& layout, const RoundedTile& tile, const WeightFormat& format,
              const std::byte* x, float (*y)[kTileRows]) noexcept {
  constexpr int kBlocks = N == 1 ? 4 : N == 2 ? 2 : 1;  // at once: as registers allow
  float32x4_t acc[4][N] = {};
  const std::byte* first = tile.codes;
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    int32x4_t corrections[N];
#pragma GCC unroll 4
    for (int i = 0; Codes::kFull && i < N; ++i) {
      corrections[i] = correction<Digits>(layout, x + i * layout.row_bytes + g * layout.group);
    }
    const std::byte* piece = first;
    for (int block = 0; block < 4; block += kBlocks) {
      GroupSums<Dot, Codes, Digits, N, kBlocks> group;
      piece = first;
      for (int c = 0; c < layout.group; c += kPiece, piece += Codes::kPieceBytes) {
        const std::byte* digits = x + g * layout.group + c;
        group.add(layout, piece + block * kBlock, 0, digits);
        group.add(layout, piece + block * kBlock, 1, digits);
        if (block == 0) prefetch<Codes::kPieceBytes>(piece);
      }
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        const float32x4_t scales = load_scales(format.scale_dtype, tile.scales, g, block + b);
        const float32x4_t biases = load_biases(format, tile, g, block + b, scales);
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          int32x4_t sums = group.total(b, i);
          if constexpr (Codes::kFull) sums = vaddq_s32(sums, corrections[i]);
          acc[block + b][i] = add_group(layout, acc[block + b][i], sums, scales, biases,
                                        x + i * layout.row_bytes, g);
        }
      }
    }
    first = piece;
  }
#pragma GCC unroll 16
  for (int k = 0; k < 4 * N; ++k) vst1q_f32(y[k / 4] + k % 4 * 4, acc[k % 4][k / 4]);
}

// Sums of the groups of centered weights that share one of the activations, as floats.
template <class Dot, class Codes, int Digits, int N, int Blocks>
void add_parts(const RoundedLayout& layout, const RoundedTile& tile, const WeightFormat& format,
               const std::byte* x, const std::byte* piece, std::int64_t g, std::int64_t end,
               int block, float32x4_t (&parts)[Blocks][N]) noexcept {
  for (; g < end; ++g) {
    GroupSums<Dot, Codes, Digits, N, Blocks> group;
    for (int c = 0; c < layout.weight_group; c += 16, piece += Codes::kPieceBytes) {
      group.add(layout, piece + block * kBlock, 0, x + g * layout.weight_group + c);
      if (block == 0) prefetch<Codes::kPieceBytes>(piece);
    }
#pragma GCC unroll 4
    for (int b = 0; b < Blocks; ++b) {
      const float32x4_t scales = load_scales(format.scale_dtype, tile.scales, g, block + b);
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i)
        parts[b][i] = vfmaq_f32(parts[b][i], vcvtq_f32_s32(group.total(b, i)), scales);
    }
  }
}

template <class Dot, class Codes, int Digits, int N>
void multiply_centered(const RoundedLayout& layout, const RoundedTile& tile,
                       const WeightFormat& format, const std::byte* x,
                       float (*y)[kTileRows]) noexcept {
  static_assert(Codes::kPieceFours == 4);
  constexpr int kBlocks = N == 1 ? 4 : N == 2 ? 2 : 1;  // at once: as registers allow
  float32x4_t acc[4][N] = {};
  const std::int64_t per_group = layout.group / layout.weight_group;
  const std::int64_t group_bytes = layout.group / 16 * Codes::kPieceBytes;
  for (std::int64_t group = 0; group < layout.n_groups; ++group) {
    const std::int64_t g = group * per_group, left = layout.n_weight_groups - g;
    for (int block = 0; block < 4; block += kBlocks) {
      float32x4_t parts[kBlocks][N] = {};
      add_parts<Dot, Codes, Digits, N, kBlocks>(
          layout, tile, format, x, tile.codes + group * group_bytes, g,
          g + (left < per_group ? left : per_group), block, parts);
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

template <class Dot>
struct Neon {
  template <int Bits>
  using Packed = cpu::Packed<Bits>;
  using PackedFp4 = Centered<IntegersFp4>;
  using PackedInt4 = Centered<IntegersInt4>;
  template <class Codes>
  using Opened = cpu::Opened<Codes>;

  template <class Codes>
  static void open(const std::byte* from, std::int64_t cols, std::byte* to) noexcept {
    open_tile<Codes>(from, cols, to);
  }
  template <class Codes, int Digits, int N>
  static constexpr Kernel multiply = cpu::multiply<Dot, Codes, Digits, N>;
  template <class Codes, int Digits, int N>
  static constexpr Kernel multiply_centered = cpu::multiply_centered<Dot, Codes, Digits, N>;

  using Halves = HalvesNeon;
  template <class Kind>
  using BlockCodes = SpanCodes<Kind>;
  template <class Kind, int>
  using OpenedBlocks = SpanOpened<Kind::kWide>;
  template <int>
  using OpenedWholeBlocks = SpanOpenedFrom64;

  template <class Codes>
  static void open_span(const std::byte* from, std::byte* to) noexcept {
    prefetch<Codes::kLines * kLine>(from);
    for (int block = 0; block < kLine; block += kBlock) {
#pragma GCC unroll 8
      for (int k = 0; k < kFours; ++k) store(to + k * kLine + block, Codes::four(from + block, k));
    }
  }
  template <class Codes, int Group, bool Biased, int Digits, int N>
  static constexpr Kernel multiply_blocks =
      cpu::multiply_blocks<Dot, Codes, Group, Biased, Digits, N>;
};

}  // namespace
}  // namespace moeflux::cpu
