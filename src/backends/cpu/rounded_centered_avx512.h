// Products with tiles of centered weights (rounded.h) for AVX-512, and which kernel serves which
// weights. As rounded_tiles_avx512.h, but for groups of the weight that are parts of those of the
// activations, and have no biases.
#pragma once

#include <utility>

#include "backends/cpu/rounded_tiles_avx512.h"

namespace moeflux::cpu {
namespace {

// What sums of products begin with, of a row of activations.
const std::int32_t* starts(const RoundedLayout& layout, const std::byte* x) noexcept {
  return static_cast<const std::int32_t*>(at(x, layout.sums_at));
}

// Sums of codes that biases of blocks are multiplied by.
[[maybe_unused]] const float* plain_sums(const RoundedLayout& layout, const std::byte* x) noexcept {
  return static_cast<const float*>(at(x, layout.sums_at));
}

// One group of activations further.
__m512 add_part(const RoundedLayout& layout, __m512 acc, __m512 part, const std::byte* x,
                std::int64_t group) noexcept {
  const float x_scale = static_cast<const float*>(at(x, layout.scales_at))[group];
  return _mm512_fmadd_ps(part, _mm512_set1_ps(x_scale), acc);
}

// Four rows of activations, or what belongs to them.
struct FourRows {
  const std::byte* x;
  std::int64_t stride, three_strides;

  FourRows at(std::int64_t offset) const noexcept { return {x + offset, stride, three_strides}; }
};

// Scales of any type, or of one.
struct AnyScales {
  static __m512 load(DType dtype, const std::byte* plane, std::int64_t g) noexcept {
    return load_scales(dtype, plane, g);
  }
};
struct E8m0Scales {
  static __m512 load(DType, const std::byte* plane, std::int64_t g) noexcept {
    return load_e8m0(plane + g * kTileRows);
  }
};
struct E4m3Scales {
  static __m512 load(DType, const std::byte* plane, std::int64_t g) noexcept {
    return load_e4m3(plane + g * kTileRows);
  }
};

// ---- few rows

// Cols: of a group of the weight; 0: as it says.
template <class Dot, class Unit, class Scales, int Digits, int N, int Cols>
void few_centered(const RoundedLayout& layout, const RoundedTile& tile, const WeightFormat& format,
                  const std::byte* x, const Outputs& out) noexcept {
  constexpr int kStep = 4 * Unit::kRegisters;
  constexpr int kChains = N == 1 && Cols == 0 ? 2 : 1;  // sums that do not wait for each other
  const int cols = Cols != 0 ? Cols : layout.weight_group;
  const std::int64_t per_group = layout.group / cols;
  __m512 acc[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) acc[i] = _mm512_setzero_ps();
  const std::byte* from = tile.codes;
  for (std::int64_t group = 0, g = 0; group < layout.n_groups; ++group) {
    const std::int64_t left = layout.n_weight_groups - g;
    const std::int64_t end = g + (left < per_group ? left : per_group);
    __m512 part[N];
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) part[i] = _mm512_setzero_ps();
    if (Cols == 16) _mm_prefetch(at(tile.scales, g * kTileRows + kAhead / 4), kAheadHint);
    for (; g < end; ++g) {
      __m512i sums[kChains][Digits][N];
#pragma GCC unroll 8
      for (int k = 0; k < N * Digits * kChains; ++k)
        sums[k / N / Digits][k / N % Digits][k % N] = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i)
        sums[0][Digits - 1][i] = _mm512_set1_epi32(starts(layout, x + i * layout.row_bytes)[g]);
      const std::byte* digits = x + g * cols;
#pragma GCC unroll 4
      for (int c = 0; c < cols; c += kStep, from += Unit::kBytes) {
        __m512i codes[Unit::kRegisters];
        Unit::load(from, codes);
        _mm_prefetch(at(from, kAhead), kAheadHint);
#pragma GCC unroll 2
        for (int k = 0; k < Unit::kRegisters; ++k) {
#pragma GCC unroll 2
          for (int digit = 0; digit < Digits; ++digit) {
#pragma GCC unroll 4
            for (int i = 0; i < N; ++i) {
              sums[k % kChains][digit][i] = Dot::template add<false>(
                  sums[k % kChains][digit][i], codes[k],
                  digits + digit * layout.low_at + i * layout.row_bytes + c + 4 * k);
            }
          }
        }
      }
      const __m512 scales = Scales::load(format.scale_dtype, tile.scales, g);
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        if (kChains == 2) {
          for (int digit = 0; digit < Digits; ++digit)
            sums[0][digit][i] = _mm512_add_epi32(sums[0][digit][i], sums[kChains - 1][digit][i]);
        }
        const __m512i sum = total<Digits>(sums[0][0][i], sums[0][Digits - 1][i]);
        part[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scales, part[i]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i)
      acc[i] = add_part(layout, acc[i], part[i], x + i * layout.row_bytes, group);
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) out.put(i, _mm512_mul_ps(acc[i], _mm512_load_ps(out.factors)));
}

// ---- many rows

// Calls body.operator()<I>() for I from 0 to N - 1.
template <int N, class Body>
__attribute__((always_inline)) inline void repeat(const Body& body) noexcept {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (body.template operator()<I>(), ...);
  }
  (std::make_integer_sequence<int, N>());
}

// Adds the products of codes [0, Cols) with one digit of N rows of activations. Rows of four are
// addressed by the first, so that all addresses stay in registers.
template <class Dot, bool Wide, int Cols, int N>
__attribute__((always_inline)) inline void add_products(const std::byte* from,
                                                        const FourRows& first,
                                                        const FourRows& second,
                                                        __m512i (&sums)[N]) noexcept {
  repeat<Cols / 4>([&]<int C>() __attribute__((always_inline)) {
    const __m512i codes = _mm512_load_si512(at(from, 64 * C));
    repeat<N>([&]<int I>() __attribute__((always_inline)) {
      sums[I] = Dot::template add_at<Wide, I % 4, 4 * C>(sums[I], codes, I < 4 ? first : second);
    });
  });
}

// Both digits go to the same sums, one after the other: registers hold the sums of all rows, what
// they add up to in a group of activations, and results. Cols as above. Biased: groups have biases
// (of blocks), which are multiplied by sums of codes, and sums of products start from zero.
template <class Dot, bool Wide, bool Biased, int Digits, int Cols, int N>
void many_centered(const RoundedLayout& layout, const OpenTile& tile, const std::byte* x,
                   const Outputs& out) noexcept {
  constexpr int kStep = Cols != 0 ? Cols : 32;  // codes that are multiplied without a loop
  const int cols = Cols != 0 ? Cols : layout.weight_group;
  const std::int64_t per_group = layout.group / layout.weight_group;
  const std::int64_t stride = layout.row_bytes, to_low = layout.low_at;
  FourRows first{x, stride, 3 * stride}, second{x + 4 * stride, stride, 3 * stride};
  FourRows starts_first{x + layout.sums_at, stride, 3 * stride};
  FourRows starts_second{starts_first.x + 4 * stride, stride, 3 * stride};
  __m512 acc[N];
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) acc[i] = _mm512_setzero_ps();
  const std::byte* from = tile.codes();
  for (std::int64_t group = 0, g = 0; group < layout.n_groups; ++group) {
    const std::int64_t left = layout.n_weight_groups - g;
    const std::int64_t end = g + (left < per_group ? left : per_group);
    __m512 part[N];
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) part[i] = _mm512_setzero_ps();
    for (; g < end; ++g) {
      __m512i sums[N];
      const auto start = [&]<int I>() __attribute__((always_inline)) {
        return Dot::template start_at<I % 4>(I < 4 ? starts_first : starts_second);
      };
      if constexpr (Digits == 1 && !Biased) {
        repeat<N>([&]<int I>()
                      __attribute__((always_inline)) { sums[I] = start.template operator()<I>(); });
      } else {
#pragma GCC unroll 8
        for (int i = 0; i < N; ++i) sums[i] = _mm512_setzero_si512();
      }
      if constexpr (Digits == 2) {
        for (int c = 0; c < cols; c += kStep) {
          add_products<Dot, Wide, kStep>(from + 16 * c, first.at(c), second.at(c), sums);
        }
        repeat<N>([&]<int I>() __attribute__((always_inline)) {
          sums[I] = _mm512_slli_epi32(sums[I], 8);
          if constexpr (!Biased)
            sums[I] = _mm512_add_epi32(sums[I], start.template operator()<I>());
        });
      }
      for (int c = 0; c < cols; c += kStep) {
        add_products<Dot, Wide, kStep>(from + 16 * c, first.at(to_low + c), second.at(to_low + c),
                                       sums);
      }
      const __m512 scales = tile.scales(g);
#pragma GCC unroll 8
      for (int i = 0; i < N; ++i)
        part[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[i]), scales, part[i]);
      if constexpr (Biased) {
        const __m512 biases = tile.biases(g);
        repeat<N>([&]<int I>() __attribute__((always_inline)) {
          const __m512 sum = _mm512_castsi512_ps(start.template operator()<I>());
          part[I] = _mm512_fmadd_ps(biases, sum, part[I]);
        });
      }
      first.x += cols, second.x += cols, from += 16 * cols;
      starts_first.x += 4, starts_second.x += 4;
    }
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i)
      acc[i] = add_part(layout, acc[i], part[i], x + i * layout.row_bytes, group);
  }
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) out.put(i, _mm512_mul_ps(acc[i], _mm512_load_ps(tile.factors.rows)));
}

template <class Dot, int Digits, int Cols, bool Wide = false, bool Biased = false>
constexpr ManyTokens kCenteredBySize[kTokens] = {many_centered<Dot, Wide, Biased, Digits, Cols, 1>,
                                                 many_centered<Dot, Wide, Biased, Digits, Cols, 2>,
                                                 many_centered<Dot, Wide, Biased, Digits, Cols, 3>,
                                                 many_centered<Dot, Wide, Biased, Digits, Cols, 4>,
                                                 many_centered<Dot, Wide, Biased, Digits, Cols, 5>,
                                                 many_centered<Dot, Wide, Biased, Digits, Cols, 6>,
                                                 many_centered<Dot, Wide, Biased, Digits, Cols, 7>,
                                                 many_centered<Dot, Wide, Biased, Digits, Cols, 8>};

// ---- which kernel

template <class Dot, int Bits, int Digits>
constexpr FewKernels kFewAffine{few_tokens<Dot, Bits, Digits, 1>, few_tokens<Dot, Bits, Digits, 2>,
                                few_tokens<Dot, Bits, Digits, 4>};
template <class Dot, class Unit, class Scales, int Digits, int Cols>
constexpr FewKernels kFewCentered{few_centered<Dot, Unit, Scales, Digits, 1, Cols>,
                                  few_centered<Dot, Unit, Scales, Digits, 2, Cols>,
                                  few_centered<Dot, Unit, Scales, Digits, 4, Cols>};

template <class Dot, class Unit, int Digits>
void few_fp4(const RoundedMatmul& op) noexcept {
  const WeightFormat& format = op.weight->format;
  if (format.group == 16 && format.scale_dtype == DType::F8E4M3) {
    few_rows(op, kFewCentered<Dot, Unit, E4m3Scales, Digits, 16>);
  } else if (format.group == 32 && format.scale_dtype == DType::U8) {
    few_rows(op, kFewCentered<Dot, Unit, E8m0Scales, Digits, 32>);
  } else {
    few_rows(op, kFewCentered<Dot, Fp4Unit, AnyScales, Digits, 0>);
  }
}

template <class Dot, int Digits>
void few_rows(const RoundedMatmul& op) noexcept {
  const WeightFormat& format = op.weight->format;
  if (op.layout->centered == 0) {
    with_bits(format.bits, [&]<int Bits>() { few_rows(op, kFewAffine<Dot, Bits, Digits>); });
  } else if (format.kind != WeightKind::Fp4) {
    op.layout->weight_group == 32
        ? few_rows(op, kFewCentered<Dot, CodeUnit<4>, AnyScales, Digits, 32>)
        : few_rows(op, kFewCentered<Dot, CodeUnit<4>, AnyScales, Digits, 0>);
  } else if (Dot::has_permute()) {
    few_fp4<Dot, typename Dot::PermutedFp4Unit, Digits>(op);
  } else {
    few_fp4<Dot, Fp4Unit, Digits>(op);
  }
}

template <class Dot>
void few_rows(const RoundedMatmul& op) noexcept {
  op.layout->digits == 1 ? few_rows<Dot, 1>(op) : few_rows<Dot, 2>(op);
}

template <class Dot, int Digits>
void many_rows(const RoundedMatmul& op) noexcept {
  const int cols = op.layout->weight_group;
  if (op.layout->centered != 0) {
    many_rows(op, cols == 16   ? multiply_open<kCenteredBySize<Dot, Digits, 16>>
                  : cols == 32 ? multiply_open<kCenteredBySize<Dot, Digits, 32>>
                               : multiply_open<kCenteredBySize<Dot, Digits, 0>>);
  } else if (op.weight->format.bits == 8) {
    many_rows(op, multiply_open<kAffineBySize<Dot, true, Digits>>);
  } else {
    many_rows(op, multiply_open<kAffineBySize<Dot, false, Digits>>);
  }
}

template <class Dot>
void many_rows(const RoundedMatmul& op) noexcept {
  op.layout->digits == 1 ? many_rows<Dot, 1>(op) : many_rows<Dot, 2>(op);
}

}  // namespace
}  // namespace moeflux::cpu
