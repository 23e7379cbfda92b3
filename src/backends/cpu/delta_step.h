// One token of the gated delta rule for one head:
//
//   S <- decay S;  delta = beta (v - S^T k);  S <- S + k delta^T;  out = S^T q
//
// Columns do not depend on each other, so a few are taken through both sums while their part of the
// state is in the nearest cache. Written once, with vectors of the compiler: each instruction set
// compiles it in its own file, and all compute the same bits. Everything has internal linkage.
#pragma once

#include <cstring>

namespace moeflux::cpu {

struct DeltaStep {
  float* state;  // [d_key, d_value]
  int d_key, d_value;
  float decay, beta;
  const float* q;  // [d_key]
  const float* k;
  const float* v;  // [d_value]
  float* out;      // [d_value]
};

namespace {

// Columns [c, c + N * sizeof(V) / 4), where V is a vector of floats or a float.
template <class V, int N>
void delta_columns(const DeltaStep& step, int c) noexcept {
  constexpr int kWidth = sizeof(V) / sizeof(float);
  V delta[N] = {}, out[N] = {}, state, values;
  for (int r = 0; r < step.d_key; ++r) {
    const float* row = step.state + r * step.d_value + c;
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      std::memcpy(&state, row + i * kWidth, sizeof state);
      delta[i] = delta[i] + step.k[r] * (state * step.decay);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    std::memcpy(&values, step.v + c + i * kWidth, sizeof values);
    delta[i] = step.beta * (values - delta[i]);
  }
  for (int r = 0; r < step.d_key; ++r) {
    float* row = step.state + r * step.d_value + c;
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      std::memcpy(&state, row + i * kWidth, sizeof state);
      state = state * step.decay + step.k[r] * delta[i];
      std::memcpy(row + i * kWidth, &state, sizeof state);
      out[i] = out[i] + step.q[r] * state;
    }
  }
  std::memcpy(step.out + c, out, sizeof out);
}

using Floats8 = float __attribute__((vector_size(32)));
using Floats16 = float __attribute__((vector_size(64)));

// V fits a vector register.
template <class V>
void delta_step(const DeltaStep& step) noexcept {
  constexpr int kVectors = 4, kWidth = kVectors * sizeof(V) / sizeof(float);
  int c = 0;
  for (; c + kWidth <= step.d_value; c += kWidth) delta_columns<V, kVectors>(step, c);
  for (; c < step.d_value; ++c) delta_columns<float, 1>(step, c);
}

}  // namespace
}  // namespace moeflux::cpu
