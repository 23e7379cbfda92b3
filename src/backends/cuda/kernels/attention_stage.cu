// Copies of caches for attention of many tokens.
#include "backends/cuda/kernels/attention_parts.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

// A power of two, by its exponent.
GPU_INLINE float power_of_two(int exponent) {
  return float_of(static_cast<std::uint32_t>(exponent + 127) << 23);
}

}  // namespace

// Blocks: tiles of 16 positions, heads.
GPU_KERNEL(stage_kv, StageParams, kStageThreads) {
  GPU_SHARED float memory[kStageThreads / kWarp];
  const int position = p.begin + block_x() * kKvTile, head = block_y();
  const int end = p.positions[p.n - 1] + 1;
  const int seen = p.window > 0 ? p.positions[0] - p.window + 1 : 0;
  if (position >= end || position + kKvTile <= seen) return;
  auto* rows = reinterpret_cast<float*>(dynamic_shared());
  const int stride = p.from.d | 1;
  load_tile(p.from, head, position, end, p.from.d, stride, rows);
  sync();
  float most = 0;
  for (int i = warp(); i < kKvTile; i += n_threads() / kWarp) {
    for (int c = lane(); c < p.from.d; c += kWarp) {
      const float size = abs(rows[i * stride + c]);
      if (size <= 3.4e38f) most = max(most, size);
    }
  }
  most = warp_max(most);
  if (lane() == 0) memory[warp()] = most;
  sync();
  for (int w = 0; w < n_threads() / kWarp; ++w) most = max(most, memory[w]);
  // Factors of keys can be anything; those of values are multiplied with weights, which are halves.
  int exponent = static_cast<int>(bits_of(most) >> 23) - 127 - 13;
  if (p.from.is_tiled) {
    exponent = most == 0 ? 0 : exponent < -100 ? -100 : exponent > 100 ? 100 : exponent;
  } else {
    exponent = exponent < 0 ? 0 : exponent > 9 ? 9 : exponent;
  }
  const float down = power_of_two(-exponent);
  const int tile = (position - p.begin) / kKvTile;
  if (thread() == 0) p.factors[head * p.factors_head + tile] = power_of_two(exponent);
  std::uint16_t* to = p.to + head * p.to_head + std::int64_t{tile} * kKvTile * p.d;
  for (int pair = thread(); pair < kKvTile * p.d / 2; pair += n_threads()) {
    float x[2];
    GPU_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int i = 2 * pair + e;
      const int row = p.from.is_tiled ? i % kKvTile : i / p.d;
      const int c = p.from.is_tiled ? i / kKvTile : i % p.d;
      x[e] = c < p.from.d ? rows[row * stride + c] * down : 0.0f;
    }
    reinterpret_cast<std::uint32_t*>(to)[pair] = to_half2(x[0], x[1]);
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
