// The gated delta rule for some columns of one head's state, over n tokens:
//
//   S <- decay S;  delta = beta (v - S^T k);  S <- S + k delta^T;  out = S^T q
//
// Columns do not depend on each other: a few are taken through all tokens before the next few, so
// that their part of the state stays in the nearest cache. Written once, with vectors of the
// compiler: each instruction set compiles it in its own file, and all compute the same bits.
// Everything has internal linkage.
#pragma once

#include <cstdint>
#include <cstring>

#include "backends/cpu/vector_math.h"

namespace moeflux::cpu {

struct DeltaStep {
  float* state;  // [d_key, n_columns], rows state_stride apart
  std::int64_t state_stride;
  int d_key, n_columns;
  std::int64_t n;  // tokens
  // Of the first token. Those of the next one are qk_stride, ... further.
  const float* q;  // [d_key]
  const float* k;
  std::int64_t qk_stride;
  const float* v;  // [n_columns]
  std::int64_t v_stride;
  const float* decay;  // one each
  const float* beta;
  std::int64_t gate_stride;
  float* out;  // [n_columns]
  std::int64_t out_stride;
};

namespace {

// Tokens lie far apart, where no processor looks ahead by itself.
inline void prefetch_floats(const float* x, int n) noexcept {
  constexpr int kLine = 16;
  for (int i = 0; i < n; i += kLine) __builtin_prefetch(x + i);
}

inline void prefetch_token(const DeltaStep& step, std::int64_t token, int c, int n) noexcept {
  prefetch_floats(step.q + token * step.qk_stride, step.d_key);
  prefetch_floats(step.k + token * step.qk_stride, step.d_key);
  prefetch_floats(step.v + token * step.v_stride + c, n);
}

// One token for the columns [c, c + N * sizeof(V) / 4), where V is a vector of floats or a float.
template <class V, int N>
void delta_columns(const DeltaStep& step, std::int64_t token, int c) noexcept {
  constexpr int kStep = kWidth<V>;
  const float* q = step.q + token * step.qk_stride;
  const float* k = step.k + token * step.qk_stride;
  const float decay = step.decay[token * step.gate_stride];
  const float beta = step.beta[token * step.gate_stride];
  V delta[N] = {}, out[N] = {}, state, values;
  if (token + 1 < step.n) prefetch_token(step, token + 1, c, N * kStep);
  for (int r = 0; r < step.d_key; ++r) {
    const float* row = step.state + r * step.state_stride + c;
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      std::memcpy(&state, row + i * kStep, sizeof state);
      delta[i] = delta[i] + k[r] * (state * decay);
    }
  }
  const float* v = step.v + token * step.v_stride + c;
#pragma GCC unroll 8
  for (int i = 0; i < N; ++i) {
    std::memcpy(&values, v + i * kStep, sizeof values);
    delta[i] = beta * (values - delta[i]);
  }
  for (int r = 0; r < step.d_key; ++r) {
    float* row = step.state + r * step.state_stride + c;
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) {
      std::memcpy(&state, row + i * kStep, sizeof state);
      state = state * decay + k[r] * delta[i];
      std::memcpy(row + i * kStep, &state, sizeof state);
      out[i] = out[i] + q[r] * state;
    }
  }
  std::memcpy(step.out + token * step.out_stride + c, out, sizeof out);
}

// V fits a vector register.
template <class V>
void delta_step(const DeltaStep& step) noexcept {
  constexpr int kVectors = 4;
  int c = 0;
  // One token: the state comes from memory, and goes best row by row.
  constexpr int kWholeRow = kWidth<V> == 16 ? 8 : 4;
  if (step.n == 1) {
    for (; c + kWholeRow * kWidth<V> <= step.n_columns; c += kWholeRow * kWidth<V>)
      delta_columns<V, kWholeRow>(step, 0, c);
  }
  for (; c + kVectors * kWidth<V> <= step.n_columns; c += kVectors * kWidth<V>) {
    for (std::int64_t i = 0; i < step.n; ++i) delta_columns<V, kVectors>(step, i, c);
  }
  for (; c + kWidth<V> <= step.n_columns; c += kWidth<V>) {
    for (std::int64_t i = 0; i < step.n; ++i) delta_columns<V, 1>(step, i, c);
  }
  for (; c < step.n_columns; ++c) {
    for (std::int64_t i = 0; i < step.n; ++i) delta_columns<float, 1>(step, i, c);
  }
}

}  // namespace
}  // namespace moeflux::cpu
