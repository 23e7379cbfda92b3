// Functions of vectors of floats, written once with vectors of the compiler: each instruction set
// compiles them in its own file, and all compute the same bits. Everything has internal linkage.
//
// V is one of the types below that fits a register of the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moeflux::cpu {

// out[c] = silu(sum over the taps of weights[tap * weight_stride + c] * x[tap][c]), in order.
struct ConvRow {
  const float* const* x;
  const float* weights;
  std::int64_t weight_stride;
  int n_taps;
  std::int64_t n;
  float* out;
};

namespace {

using Floats4 = float __attribute__((vector_size(16)));
using Floats8 = float __attribute__((vector_size(32)));
using Floats16 = float __attribute__((vector_size(64)));

template <class V>
inline constexpr int kWidth = sizeof(V) / sizeof(float);

template <class V>
V load(const float* x) noexcept {
  V v;
  __builtin_memcpy(&v, x, sizeof v);
  return v;
}
template <class V>
void store(float* x, V v) noexcept {
  __builtin_memcpy(x, &v, sizeof v);
}

// exp(x) for x <= 0 to about one unit in the last place; 0 where the result would be subnormal, NaN
// for NaN.
template <class V>
V exp_of_negative(V x) noexcept {
  using Ints = decltype(x < x);
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // few bits, so that a small integer times it is exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kRound = 0x1.8p+23f;  // adding it rounds to an integer, left in the low bits
  constexpr float kLeast = -87.33f;
  const V shifted = x * kLog2E + kRound;
  const V n = shifted - kRound;
  const V r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2

  // The Taylor series up to r^7, even and odd powers apart: half the latency.
  const V r2 = r * r;
  const V even = ((1.0f / 720) * r2 + (1.0f / 24)) * r2 + 0.5f;
  const V odd = ((1.0f / 5040) * r2 + (1.0f / 120)) * r2 + (1.0f / 6);
  const V p = (r + r2 * (even + odd * r)) + 1.0f;

  // 2^n, built in the exponent field; the shift drops all but the low bits of `shifted`.
  const Ints power = (__builtin_bit_cast(Ints, shifted) + 127) << 23;
  const Ints result = __builtin_bit_cast(Ints, p * __builtin_bit_cast(V, power));
  return __builtin_bit_cast(V, result & ~(x < kLeast));
}

// 1 / (1 + exp(-x))
template <class V>
V sigmoid_of(V x) noexcept {
  using Ints = decltype(x < x);
  const Ints negative = x < 0.0f;
  const V e = exp_of_negative(__builtin_bit_cast(V, __builtin_bit_cast(Ints, x) | INT32_MIN));
  const Ints ones = __builtin_bit_cast(Ints, V{} + 1.0f);
  const Ints numerator = (negative & __builtin_bit_cast(Ints, e)) | (~negative & ones);
  return __builtin_bit_cast(V, numerator) / (1.0f + e);
}

// y[i] = f(x[i]) for f(V): the tail goes through a whole vector, so that it too has the same bits.
template <class V, class F>
void map(const float* x, float* y, std::int64_t n, F f) noexcept {
  constexpr std::int64_t kStep = kWidth<V>;
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) store(y + i, f(load<V>(x + i)));
  if (i == n) return;
  const auto bytes = static_cast<std::size_t>(n - i) * sizeof(float);
  float tail[kStep] = {};
  __builtin_memcpy(tail, x + i, bytes);
  store(tail, f(load<V>(tail)));
  __builtin_memcpy(y + i, tail, bytes);
}

template <class V>
void sigmoid_row(const float* x, float* y, std::int64_t n) noexcept {
  map<V>(x, y, n, [](V v) { return sigmoid_of(v); });
}
template <class V>
void silu_row(const float* x, float* y, std::int64_t n) noexcept {
  map<V>(x, y, n, [](V v) { return v * sigmoid_of(v); });
}

template <class V>
void conv_row(const ConvRow& op) noexcept {
  constexpr std::int64_t kStep = kWidth<V>;
  const auto some = [&](std::int64_t c, std::size_t bytes) __attribute__((always_inline)) {
    V sum{};
    for (int tap = 0; tap < op.n_taps; ++tap) {
      V weight{}, value{};
      __builtin_memcpy(&weight, op.weights + tap * op.weight_stride + c, bytes);
      __builtin_memcpy(&value, op.x[tap] + c, bytes);
      sum += weight * value;
    }
    const V result = sum * sigmoid_of(sum);
    __builtin_memcpy(op.out + c, &result, bytes);
  };
  std::int64_t c = 0;
  for (; c + kStep <= op.n; c += kStep) some(c, sizeof(V));
  if (c < op.n) some(c, static_cast<std::size_t>(op.n - c) * sizeof(float));
}

}  // namespace
}  // namespace moeflux::cpu
