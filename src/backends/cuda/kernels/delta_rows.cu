// What stands before and after the gated delta rule of many rows: its convolution, and the norms of
// heads of 128 values.
#include "backends/cuda/kernels/delta.h"
#include "backends/cuda/kernels/gpu.h"
#include "base/portable_math.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

GPU_INLINE float silu(float x) {
  return x * sigmoid(x);
}

// Four channels of a thread, through a run of rows.
template <int kWidth>
GPU_INLINE void convolve(const ConvParams& p) {
  constexpr int kPast = kWidth - 1, kAtOnce = 4;
  const int quads = p.channels / 4, c = block_x() * n_threads() + thread();
  if (c >= quads) return;
  const auto* x = reinterpret_cast<const FloatQuad*>(p.x) + c;
  const auto* state = reinterpret_cast<const FloatQuad*>(p.state) + c;
  auto* out = reinterpret_cast<FloatQuad*>(p.out) + c;
  const auto* stored = reinterpret_cast<const FloatQuad*>(p.weight) + c;
  FloatQuad weights[kWidth];
  GPU_UNROLL
  for (int tap = 0; tap < kWidth; ++tap) weights[tap] = stored[tap * std::int64_t{quads}];
  const int begin = block_y() * kConvRun, end = begin + kConvRun < p.n ? begin + kConvRun : p.n;
  FloatQuad inputs[kPast + kAtOnce];
  GPU_UNROLL
  for (int i = 0; i < kPast; ++i) {
    const int t = begin - kPast + i;
    inputs[i] = t < 0 ? state[(t + kPast) * std::int64_t{quads}] : x[t * std::int64_t{quads}];
  }
  GPU_ROLLED
  for (int first = begin; first < end; first += kAtOnce) {
    GPU_UNROLL
    for (int i = 0; i < kAtOnce; ++i)
      inputs[kPast + i] = x[(first + i < end ? first + i : end - 1) * std::int64_t{quads}];
    GPU_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      FloatQuad sum{0, 0, 0, 0};
      GPU_UNROLL
      for (int tap = 0; tap < kWidth; ++tap) {
        const FloatQuad &w = weights[tap], &in = inputs[i + tap];
        sum.x += w.x * in.x;
        sum.y += w.y * in.y;
        sum.z += w.z * in.z;
        sum.w += w.w * in.w;
      }
      if (first + i < end)
        out[(first + i) * std::int64_t{quads}] = {silu(sum.x), silu(sum.y), silu(sum.z),
                                                  silu(sum.w)};
    }
    GPU_UNROLL
    for (int i = 0; i < kPast; ++i) inputs[i] = inputs[kAtOnce + i];
  }
}

GPU_INLINE float sum_of_squares(const FloatQuad& q) {
  return warp_sum(q.x * q.x + q.y * q.y + (q.z * q.z + q.w * q.w));
}

// A row of 128 values as two bfloats each, in place: a lane has four.
GPU_INLINE void store_split(float* row, const FloatQuad& q, float scale) {
  const float values[4] = {q.x * scale, q.y * scale, q.z * scale, q.w * scale};
  std::uint32_t high[2], rest[2];
  GPU_UNROLL
  for (int i = 0; i < 2; ++i) {
    high[i] = to_bfloat2(values[2 * i], values[2 * i + 1]);
    rest[i] = to_bfloat2(values[2 * i] - float_of(high[i] << 16),
                         values[2 * i + 1] - float_of(high[i] & 0xFFFF0000u));
  }
  sync_warp();  // all lanes have read the row
  reinterpret_cast<Pair*>(row)[lane()] = {high[0], high[1]};
  reinterpret_cast<Pair*>(row)[kWarp + lane()] = {rest[0], rest[1]};
}

}  // namespace

// Blocks: pieces of the channels, runs of rows.
GPU_KERNEL(short_conv_rows, ConvParams, 128) {
  convolve<4>(p);
}

// As prepare_delta, for delta_chunks: a warp for each row and key head, and the value heads that
// come with it.
GPU_KERNEL(prepare_chunks, DeltaParams, 256) {
  static_assert(kChunkKey == 4 * kWarp);
  const std::int64_t index = std::int64_t{block_x()} * (n_threads() / kWarp) + warp();
  const std::int64_t row = index / p.n_key_heads;
  const int head = static_cast<int>(index % p.n_key_heads);
  if (row >= p.n) return;
  const std::int64_t stride = 2 * p.n_key_heads * p.d_key + p.n_value_heads * p.d_value;
  float* q = p.qkv + row * stride + head * kChunkKey;
  float* k = q + p.n_key_heads * kChunkKey;
  const FloatQuad of_q = reinterpret_cast<const FloatQuad*>(q)[lane()];
  const FloatQuad of_k = reinterpret_cast<const FloatQuad*>(k)[lane()];
  store_split(q, of_q, p.q_scale / sqrt(sum_of_squares(of_q) + 1e-6f));
  store_split(k, of_k, 1.0f / sqrt(sum_of_squares(of_k) + 1e-6f));
  for (int h = head + lane() * p.n_key_heads; h < p.n_value_heads; h += kWarp * p.n_key_heads) {
    float* a = p.a + row * p.n_value_heads + h;
    float* b = p.b + row * p.n_value_heads + h;
    *a = -portable::exp(p.a_log[h]) * portable::softplus(*a + p.dt_bias[h]);
    *b = portable::sigmoid(*b);
  }
}

// As finish_delta, for heads of 128 values: a warp for each row and head.
GPU_KERNEL(finish_rows, DeltaParams, 256) {
  const std::int64_t index = std::int64_t{block_x()} * (n_threads() / kWarp) + warp();
  if (index >= std::int64_t{p.n} * p.n_value_heads) return;
  auto* out = reinterpret_cast<FloatQuad*>(p.out) + index * kWarp + lane();
  const FloatQuad z = reinterpret_cast<const FloatQuad*>(p.z)[index * kWarp + lane()];
  const FloatQuad norm = reinterpret_cast<const FloatQuad*>(p.norm)[lane()];
  const FloatQuad own = *out;
  const float inverse = 1.0f / sqrt(sum_of_squares(own) / (4 * kWarp) + p.eps);
  const auto gate = [&](float x) GPU_LAMBDA { return p.gate_is_silu ? silu(x) : sigmoid(x); };
  *out = {own.x * inverse * norm.x * gate(z.x), own.y * inverse * norm.y * gate(z.y),
          own.z * inverse * norm.z * gate(z.z), own.w * inverse * norm.w * gate(z.w)};
}

}  // namespace moeflux::gpu
GPU_CODE_END
