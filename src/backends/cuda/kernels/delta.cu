// Linear attention in its recurrent form.
#include "backends/cuda/kernels/delta.h"
#include "backends/cuda/kernels/gpu.h"
#include "base/portable_math.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// Blocks: pieces of the channels, rows.
GPU_KERNEL(short_conv, ConvParams, 256) {
  const int c = block_x() * n_threads() + thread();
  if (c >= p.channels) return;
  const int past = p.width - 1;
  const auto input = [&](int t) {  // before this call in the state
    return t < 0 ? p.state[(t + past) * std::int64_t{p.channels} + c]
                 : p.x[t * std::int64_t{p.channels} + c];
  };
  const int begin = block_y();
  float sum = 0;
  for (int tap = 0; tap < p.width; ++tap)
    sum += p.weight[tap * std::int64_t{p.channels} + c] * input(begin + tap - past);
  p.out[begin * std::int64_t{p.channels} + c] = sum * sigmoid(sum);
}

// After short_conv: the state becomes the last width - 1 inputs, oldest first.
GPU_KERNEL(advance_conv, ConvParams, 256) {
  const int c = block_x() * n_threads() + thread();
  if (c >= p.channels) return;
  const int past = p.width - 1;
  for (int slot = 0; slot < past; ++slot) {  // reads ahead of what it writes
    const int t = p.n - past + slot;
    p.state[slot * std::int64_t{p.channels} + c] =
        t < 0 ? p.state[(t + past) * std::int64_t{p.channels} + c]
              : p.x[t * std::int64_t{p.channels} + c];
  }
}

// Queries and keys of length 1, decays and betas. Blocks: rows, key heads; the first also does the
// gates.
GPU_KERNEL(prepare_delta, DeltaParams, 128) {
  GPU_SHARED float memory[64];
  const int conv_dim = 2 * p.n_key_heads * p.d_key + p.n_value_heads * p.d_value;
  float* q = p.qkv + block_x() * std::int64_t{conv_dim} + block_y() * p.d_key;
  float* k = q + p.n_key_heads * p.d_key;
  float q_squares = 0, k_squares = 0;
  for (int c = thread(); c < p.d_key; c += n_threads()) {
    q_squares += q[c] * q[c];
    k_squares += k[c] * k[c];
  }
  const float q_inverse = p.q_scale / sqrt(block_sum(q_squares, memory) + 1e-6f);
  const float k_inverse = 1.0f / sqrt(block_sum(k_squares, memory + 32) + 1e-6f);
  for (int c = thread(); c < p.d_key; c += n_threads()) {
    q[c] *= q_inverse;
    k[c] *= k_inverse;
  }
  if (block_y() != 0) return;
  for (int h = thread(); h < p.n_value_heads; h += n_threads()) {
    float* a = p.a + block_x() * std::int64_t{p.n_value_heads} + h;
    float* b = p.b + block_x() * std::int64_t{p.n_value_heads} + h;
    *a = portable::exp(-portable::exp(p.a_log[h]) * portable::softplus(*a + p.dt_bias[h]));
    *b = portable::sigmoid(*b);
  }
}

// Blocks: pieces of kDeltaColumns columns of a head's state, heads. 8 threads share a column, each
// with d_key / 8 of its values in registers, through all rows.
template <int kRows>
GPU_INLINE void delta_columns(const DeltaParams& p) {
  constexpr int kSharers = kDeltaThreads / kDeltaColumns;
  const int head = block_y(), sharers = p.n_value_heads / p.n_key_heads;
  const int key_head = p.heads_alternate ? head % p.n_key_heads : head / sharers;
  const int part = thread() % kSharers, column = block_x() * kDeltaColumns + thread() / kSharers;
  const bool is_there = column < p.d_value;
  const int conv_dim = 2 * p.n_key_heads * p.d_key + p.n_value_heads * p.d_value;
  float* state = p.state + std::int64_t{head} * p.d_key * p.d_value + column;
  float s[kRows];
  GPU_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int r = i * kSharers + part;
    s[i] = is_there && r < p.d_key ? state[std::int64_t{r} * p.d_value] : 0.0f;
  }
  const float* q = p.qkv + key_head * p.d_key;
  const float* k = q + p.n_key_heads * p.d_key;
  const float* v = p.qkv + 2 * p.n_key_heads * p.d_key + head * p.d_value + column;
  const auto sum_of_sharers = [](float x) {
    GPU_UNROLL
    for (int mask = kSharers / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    return x;
  };
  for (int row = 0; row < p.n; ++row) {
    const std::int64_t at = row * std::int64_t{conv_dim};
    const float decay = p.a[row * std::int64_t{p.n_value_heads} + head];
    const float beta = p.b[row * std::int64_t{p.n_value_heads} + head];
    float keys[kRows], delta = 0;
    GPU_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int r = i * kSharers + part;
      keys[i] = r < p.d_key ? k[at + r] : 0.0f;
      s[i] *= decay;
      delta += keys[i] * s[i];
    }
    delta = sum_of_sharers(delta);
    delta = beta * ((is_there ? v[at] : 0.0f) - delta);
    float out = 0;
    GPU_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const int r = i * kSharers + part;
      s[i] += keys[i] * delta;
      out += (r < p.d_key ? q[at + r] : 0.0f) * s[i];
    }
    out = sum_of_sharers(out);
    if (is_there && part == 0)
      p.out[row * std::int64_t{p.n_value_heads} * p.d_value + head * p.d_value + column] = out;
  }
  GPU_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int r = i * kSharers + part;
    if (is_there && r < p.d_key) state[std::int64_t{r} * p.d_value] = s[i];
  }
}

GPU_KERNEL(delta_rule_64, DeltaParams, 256) {
  delta_columns<8>(p);
}
GPU_KERNEL(delta_rule_128, DeltaParams, 256) {
  delta_columns<16>(p);
}
GPU_KERNEL(delta_rule_256, DeltaParams, 256) {
  delta_columns<32>(p);
}

// The gated norm of what was read out. Blocks: rows, value heads.
GPU_KERNEL(finish_delta, DeltaParams, 128) {
  GPU_SHARED float memory[32];
  const std::int64_t at =
      (block_x() * std::int64_t{p.n_value_heads} + block_y()) * std::int64_t{p.d_value};
  float* out = p.out + at;
  const float* z = p.z + at;
  float squares = 0;
  for (int c = thread(); c < p.d_value; c += n_threads()) squares += out[c] * out[c];
  const float mean = block_sum(squares, memory) / static_cast<float>(p.d_value);
  const float inverse = 1.0f / sqrt(mean + p.eps);
  for (int c = thread(); c < p.d_value; c += n_threads()) {
    const float gate = p.gate_is_silu ? z[c] * sigmoid(z[c]) : sigmoid(z[c]);
    out[c] = out[c] * inverse * p.norm[c] * gate;
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
