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

// Both for one row.
GPU_KERNEL(short_conv_step, ConvParams, 256) {
  const int c = block_x() * n_threads() + thread();
  if (c >= p.channels) return;
  const int past = p.width - 1;
  const float newest = p.x[c];
  float sum = 0;
  for (int tap = 0; tap < p.width; ++tap) {
    float* slot = p.state + tap * std::int64_t{p.channels} + c;
    const float input = tap < past ? *slot : newest;
    sum += p.weight[tap * std::int64_t{p.channels} + c] * input;
    if (tap > 0) slot[-std::int64_t{p.channels}] = input;
  }
  p.out[c] = sum * sigmoid(sum);
}

GPU_INLINE float decay_of(const DeltaParams& p, int head, float a) {
  const float x = a + p.dt_bias[head];
  if (p.is_exact) return portable::exp(-portable::exp(p.a_log[head]) * portable::softplus(x));
  const float softplus = x > 20 ? x : log2(1.0f + exp(x)) * 0.6931471805599453f;
  return exp(-exp(p.a_log[head]) * softplus);
}
GPU_INLINE float beta_of(const DeltaParams& p, float b) {
  return p.is_exact ? portable::sigmoid(b) : sigmoid(b);
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
    const std::int64_t at = block_x() * std::int64_t{p.n_value_heads} + h;
    p.a[at] = decay_of(p, h, p.a[at]);
    p.b[at] = beta_of(p, p.b[at]);
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

GPU_INLINE float gated_value(const DeltaParams& p, float value, float z) {
  return value * (p.gate_is_silu ? z * sigmoid(z) : sigmoid(z));
}

// All of it for one row: a block for each value head. A warp takes rows of the state, a lane four
// columns of them.
GPU_KERNEL(delta_step_128, DeltaParams, kDeltaStepThreads) {
  constexpr int kWarps = kDeltaStepThreads / kWarp, kRows = 128 / kWarps;
  GPU_SHARED float queries[128], keys[128], sums[kWarps], gates[2];
  GPU_SHARED FloatQuad parts[kWarps][kWarp];
  const int head = block_x(), sharers = p.n_value_heads / p.n_key_heads;
  const int key_head = p.heads_alternate ? head % p.n_key_heads : head / sharers;
  const int column = 4 * lane();
  const bool has_columns = column < p.d_value;
  float* state = p.state + std::int64_t{head} * p.d_key * p.d_value + column;
  FloatQuad s[kRows];
  GPU_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int r = i * kWarps + warp();
    const bool is_there = has_columns && r < p.d_key;
    s[i] = is_there ? *reinterpret_cast<const FloatQuad*>(state + r * p.d_value)
                    : FloatQuad{0, 0, 0, 0};
  }
  const float* q = p.qkv + key_head * p.d_key;
  const float* k = q + p.n_key_heads * p.d_key;
  const bool is_column = thread() < p.d_value;
  const float value =
      is_column ? p.qkv[2 * p.n_key_heads * p.d_key + head * p.d_value + thread()] : 0.0f;
  const float z = is_column ? p.z[head * p.d_value + thread()] : 0.0f;
  const float norm = is_column ? p.norm[thread()] : 0.0f;

  // The first threads have the queries, the next ones the keys: whole warps of each.
  const bool has_query = thread() < p.d_key, has_key = !has_query && thread() < 2 * p.d_key;
  const float own = has_query ? q[thread()] : has_key ? k[thread() - p.d_key] : 0.0f;
  const float squares = warp_sum(own * own);
  if (lane() == 0) sums[warp()] = squares;
  if (thread() == n_threads() - 1) gates[0] = decay_of(p, head, p.a[head]);
  if (thread() == n_threads() - 1 - kWarp) gates[1] = beta_of(p, p.b[head]);
  sync();
  if (has_query || has_key) {
    const int warps = p.d_key / kWarp, first = has_query ? 0 : warps;
    float sum = 0;
    for (int w = first; w < first + warps; ++w) sum += sums[w];
    if (has_query)
      queries[thread()] = own * (p.q_scale / sqrt(sum + 1e-6f));
    else
      keys[thread() - p.d_key] = own * (1.0f / sqrt(sum + 1e-6f));
  }
  sync();
  // Sums over the rows of all warps, for the thread of a column.
  const auto sum_of_warps = [&](const FloatQuad& part) GPU_LAMBDA {
    parts[warp()][lane()] = part;
    sync();
    float sum = 0;
    if (is_column) {
      const float* of_column = &parts[0][0].x + thread();
      GPU_UNROLL
      for (int w = 0; w < kWarps; ++w) sum += of_column[w * 4 * kWarp];
    }
    return sum;
  };
  FloatQuad part{0, 0, 0, 0};
  GPU_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int r = i * kWarps + warp();
    const float key = r < p.d_key ? keys[r] : 0.0f;
    s[i].x *= gates[0], s[i].y *= gates[0], s[i].z *= gates[0], s[i].w *= gates[0];
    part.x += key * s[i].x, part.y += key * s[i].y, part.z += key * s[i].z, part.w += key * s[i].w;
  }
  const float delta = gates[1] * (value - sum_of_warps(part));
  sync();
  if (is_column) (&parts[0][0].x)[thread()] = delta;
  sync();
  const FloatQuad deltas = has_columns ? parts[0][lane()] : FloatQuad{0, 0, 0, 0};
  sync();
  part = {0, 0, 0, 0};
  GPU_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int r = i * kWarps + warp();
    if (r >= p.d_key) continue;
    const float key = keys[r], query = queries[r];
    s[i].x += key * deltas.x, s[i].y += key * deltas.y;
    s[i].z += key * deltas.z, s[i].w += key * deltas.w;
    part.x += query * s[i].x, part.y += query * s[i].y;
    part.z += query * s[i].z, part.w += query * s[i].w;
    if (has_columns) *reinterpret_cast<FloatQuad*>(state + r * p.d_value) = s[i];
  }
  const float read = sum_of_warps(part);
  const float read_squares = warp_sum(read * read);
  if (lane() == 0) sums[warp()] = read_squares;
  sync();
  if (!is_column) return;
  float sum = 0;
  for (int w = 0; w < p.d_value / kWarp; ++w) sum += sums[w];
  const float inverse = 1.0f / sqrt(sum / static_cast<float>(p.d_value) + p.eps);
  p.out[head * p.d_value + thread()] = gated_value(p, read * inverse * norm, z);
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
  for (int c = thread(); c < p.d_value; c += n_threads())
    out[c] = gated_value(p, out[c] * inverse * p.norm[c], z[c]);
}

}  // namespace moeflux::gpu
GPU_CODE_END
