// Products with few rows of activations on 64-bit Arm: weights are used as they lie in memory. Part
// of q8_neon.h, and included only where that is.
#pragma once

#include "backends/cpu/q8_neon.h"

namespace moeflux::cpu {
namespace {

constexpr int kFewTokens = 3;

// 16 bytes of weights, or 8 and then zeros, as signed codes: one register per code within a byte.
template <Stored S>
void load_codes(const std::byte* at, int8x16_t (&codes)[steps_of(S)]) noexcept {
  const uint8x16_t packed =
      S == Stored::TwoHalf ? vcombine_u8(load<uint8x8_t>(at), vdup_n_u8(0)) : load<uint8x16_t>(at);
  if constexpr (S == Stored::Spread) {
    codes[0] = vreinterpretq_s8_u8(packed);
  } else if constexpr (S == Stored::Eight) {
    codes[0] = vreinterpretq_s8_u8(veorq_u8(packed, vdupq_n_u8(0x80)));
  } else if constexpr (S == Stored::Four) {
    codes[0] = vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15)));
    codes[1] = vreinterpretq_s8_u8(vshrq_n_u8(packed, 4));
  } else {
    const uint8x16_t mask = vdupq_n_u8(3);
    codes[0] = vreinterpretq_s8_u8(vandq_u8(packed, mask));
    codes[1] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(packed, 2), mask));
    codes[2] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(packed, 4), mask));
    codes[3] = vreinterpretq_s8_u8(vshrq_n_u8(packed, 6));
  }
}

// What belongs to them.
template <Stored S>
int8x16_t load_digits(const std::byte* at) noexcept {
  if constexpr (S == Stored::TwoHalf) return vcombine_s8(load<int8x8_t>(at), vdup_n_s8(0));
  return load<int8x16_t>(at);
}

// Sums of a group with N rows of activations; of each digit apart.
template <class Dot, Stored S, int Digits, int N, int R>
struct GroupSums {
  int32x4_t products[N][Digits][R] = {};
  int32x4_t codes[N][Digits] = {};  // for codes of 8 bits

  // 16 bytes of each row of weights. x: the first digit of the first row of activations.
  void add(const std::byte* const (&w)[R], std::int64_t byte, const std::byte* x,
           std::int64_t row_bytes, std::int64_t low_at) noexcept {
    constexpr int kSteps = steps_of(S);
    constexpr bool kFull = S == Stored::Eight;
    x += byte / kBlock * (kBlock * kSteps) + byte % kBlock;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      int8x16_t weights[kSteps];
      load_codes<S>(w[r] + byte, weights);
#pragma GCC unroll 3
      for (int i = 0; i < N; ++i) {
#pragma GCC unroll 2
        for (int d = 0; d < Digits; ++d) {
          int8x16_t digits[kSteps];
#pragma GCC unroll 4
          for (int step = 0; step < kSteps; ++step) {
            digits[step] = load_digits<S>(x + i * row_bytes + d * low_at + step * kBlock);
          }
          Dot::template add<kFull>(products[i][d][r], weights, digits);
          if (kFull && r == 0) Dot::add_codes(codes[i][d], digits[0]);
        }
      }
    }
  }

  // Of rows 4 * block to 4 * block + 3.
  int32x4_t total(int i, int block) const noexcept {
    int32x4_t sum = vdupq_n_s32(0);
#pragma GCC unroll 2
    for (int d = 0; d < Digits; ++d) {
      const int32x4_t* p = products[i][d] + 4 * block;
      const int32x4_t rows = vpaddq_s32(vpaddq_s32(p[0], p[1]), vpaddq_s32(p[2], p[3]));
      sum = d == 0 ? rows : vaddq_s32(vshlq_n_s32(sum, 8), rows);
    }
    if constexpr (S == Stored::Eight) {
      int32x4_t all = codes[i][0];
      if constexpr (Digits == 2) all = vaddq_s32(vshlq_n_s32(all, 8), codes[i][1]);
      sum = vaddq_s32(sum, vshlq_n_s32(in_all_lanes(all), 7));
    }
    return sum;
  }
};

// Blocks * 4 rows of weights with N of activations, the first of which is `token`.
template <class Dot, Stored S, int Digits, int N, int Blocks>
void few_products(const Q8Matmul& op, const Rows& rows, std::int64_t token) noexcept {
  constexpr int kRows = 4 * Blocks;
  const Q8Layout& layout = *op.layout;
  const std::byte* x = op.x + token * layout.row_bytes;
  const std::byte* w[kRows];
  for (int r = 0; r < kRows; ++r) {
    w[r] = S == Stored::Spread ? rows.codes + r * layout.padded : rows.data(r);
  }
  const std::int64_t row_bytes = layout.row_bytes, low_at = layout.low_at;
  const std::int64_t group_bytes = layout.group / steps_of(S);
  float32x4_t acc[N][Blocks] = {};
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    const std::int64_t begin = g * group_bytes, end = begin + group_bytes;
    GroupSums<Dot, S, Digits, N, kRows> sums;
    for (std::int64_t line = begin; S != Stored::Spread && line < end; line += kBlock) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) __builtin_prefetch(w[r] + line + kAhead, 0, 2);
    }
    for (std::int64_t byte = begin; byte < end; byte += S == Stored::TwoHalf ? 8 : 16) {
      sums.add(w, byte, x, row_bytes, low_at);
    }
#pragma GCC unroll 3
    for (int i = 0; i < N; ++i) {
      const float x_scale = floats_at(x + i * row_bytes + layout.scales_at)[g];
      const float x_sum = floats_at(x + i * row_bytes + layout.sums_at)[g];
#pragma GCC unroll 2
      for (int b = 0; b < Blocks; ++b) {
        acc[i][b] = add_group(acc[i][b], sums.total(i, b), rows.scales + g * kRows + 4 * b,
                              rows.biases + g * kRows + 4 * b, x_scale, x_sum);
      }
    }
  }
  store_products(op, rows.first, token, acc);
}

// Codes of 3, 5 and 6 bits, one per byte.
void spread_rows(const Rows& rows, const Q8Layout& layout) noexcept {
  with_bits(rows.weight->format.bits, [&]<int Bits>() {
    for (int r = 0; r < rows.n_rows; ++r) {
      const std::byte* from = rows.data(r);
      std::byte* to = rows.codes + r * layout.padded;
      for (std::int64_t c = 0; c < layout.cols; c += 16, from += 2 * Bits) {
        __builtin_prefetch(from + kAhead, 0, 2);
        store(to + c, load_16_codes<Bits>(from));
      }
    }
  });
}

template <class Dot, Stored S, int Digits, int N>
void few_tokens(const Q8Matmul& op, std::int64_t token) noexcept {
  // Two blocks of rows make two chains of sums of floats; with more tokens there are enough.
  constexpr int kBlocks = N == 1 ? 2 : 1;
  for (std::int64_t row = op.row; row < op.row + op.n_rows; row += 4 * kBlocks) {
    const Rows rows = open_rows(op, row, 4 * kBlocks);
    if (S == Stored::Spread) spread_rows(rows, *op.layout);
    few_products<Dot, S, Digits, N, kBlocks>(op, rows, token);
  }
}

template <class Dot, Stored S, int Digits>
void matmul_stored(const Q8Matmul& op) noexcept {
  for (std::int64_t token = 0; token < op.n; token += kFewTokens) {
    if (op.n - token >= 3) {
      few_tokens<Dot, S, Digits, 3>(op, token);
    } else if (op.n - token == 2) {
      few_tokens<Dot, S, Digits, 2>(op, token);
    } else {
      few_tokens<Dot, S, Digits, 1>(op, token);
    }
  }
}

template <class Dot, int Digits>
void matmul_blocks(const Q8Matmul& op) noexcept {
  switch (op.weight->format.bits) {
    case 2:
      return op.layout->group == 32 ? matmul_stored<Dot, Stored::TwoHalf, Digits>(op)
                                    : matmul_stored<Dot, Stored::Two, Digits>(op);
    case 4:
      return matmul_stored<Dot, Stored::Four, Digits>(op);
    case 8:
      return matmul_stored<Dot, Stored::Eight, Digits>(op);
    default:
      return matmul_stored<Dot, Stored::Spread, Digits>(op);
  }
}

}  // namespace
}  // namespace moeflux::cpu
