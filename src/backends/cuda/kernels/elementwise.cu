// Rows of activations: embedding, norms, sums, bounds, rotation, and rows of a cache.
#include "backends/cuda/kernels/elementwise.h"
#include "backends/cuda/kernels/row_norm.h"
#include "backends/cuda/kernels/weights.h"
#include "base/portable_math.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

// The least bf16 that is not below x > 0.
inline std::uint32_t to_bfloat_upwards(float x) {
  return (bits_of(x) + 0xFFFFu) >> 16;
}
inline std::uint16_t nearest_bfloat(float x) {
  return static_cast<std::uint16_t>(to_bfloat2(x, 0) & 0xFFFFu);
}
// What is finite stays finite.
inline std::uint16_t nearest_half(float x) {
  const bool is_finite = abs(x) <= 3.4e38f;
  return to_half(is_finite ? max(-65504.0f, min(65504.0f, x)) : x);
}

}  // namespace

// A block for each row.
GPU_KERNEL(embed, EmbedParams, 256) {
  const int row = block_x();
  const int token = p.tokens[row];
  for (int c = thread(); c < p.table.cols; c += n_threads())
    p.out[row * p.out_stride + c] = weight_at(p.table, token, c) * p.scale;
}

// A block for each row.
GPU_KERNEL(rms_norm, RmsNormParams, kNormThreads) {
  GPU_SHARED float memory[32];
  const float* x = p.x + block_x() * p.x_stride;
  float* out = p.out + block_x() * p.out_stride;
  const float inverse = inverse_length(squares_of_thread(x, p.d), p.d, p.eps, memory);
  for (int c = thread(); c < p.d; c += n_threads())
    out[c] = x[c] * inverse * (p.weight == nullptr ? 1.0f : p.weight[c]);
}

GPU_KERNEL(copy_words, CopyWordsParams, 256) {
  for (std::int64_t i = std::int64_t{block_x()} * n_threads() + thread(); i < p.n;
       i += std::int64_t{n_blocks_x()} * n_threads())
    p.to[i] = p.from[i];
}

GPU_KERNEL(add, AddParams, 256) {
  const std::int64_t i = std::int64_t{block_x()} * n_threads() + thread();
  if (i >= p.n) return;
  const float sum = p.y[i] + p.x[i];
  p.y[i] = p.scale == nullptr ? sum : sum * *p.scale;
}

// Blocks: pieces of a row, rows.
GPU_KERNEL(clamp, BoundParams, 256) {
  const int c = block_x() * n_threads() + thread();
  if (c >= p.cols) return;
  float* x = p.x + block_y() * p.stride + c;
  if (*x < -p.bound) *x = -p.bound;
  if (*x > p.bound) *x = p.bound;
}

GPU_KERNEL(softcap, BoundParams, 256) {
  const int c = block_x() * n_threads() + thread();
  if (c >= p.cols) return;
  float* x = p.x + block_y() * p.stride + c;
  const double cap = p.bound;
  *x = static_cast<float>(cap * (1 - 2 / (portable::exp(2 * (*x / cap)) + 1)));
}

// Blocks: rows. A thread turns one pair of all heads, or of some.
GPU_KERNEL(rope, RopeParams, 256) {
  const float position = static_cast<float>(p.positions[block_x()]);
  const int groups = n_threads() / p.half > 0 ? n_threads() / p.half : 1;
  for (int pair = thread() % (n_threads() / groups); pair < p.half; pair += n_threads() / groups) {
    const int group = thread() / (n_threads() / groups);
    if (group >= groups) break;
    const portable::SinCos turn = portable::sin_cos(position * p.inverse_frequencies[pair]);
    const float cosine = static_cast<float>(turn.cos) * p.magnitude;
    const float sine = static_cast<float>(turn.sin) * p.magnitude;
    for (int h = group; h < p.n_heads; h += groups) {
      float* first = p.x + block_x() * p.stride + h * p.head_stride + pair * p.step;
      const float a = first[0], b = first[p.partner];
      first[0] = a * cosine - b * sine;
      first[p.partner] = b * cosine + a * sine;
    }
  }
}

// Blocks: rows, heads. A warp takes 32 values, which share a scale in Q8.
GPU_KERNEL(store_kv, StoreKvParams, 256) {
  const DeviceKv& kv = p.cache;
  const std::int64_t position = p.positions[block_x()], head = block_y();
  const float* x = p.x + block_x() * p.x_stride + head * kv.d;
  const std::int64_t lane_in_tile = kv.is_tiled ? position % 16 : 0, step = kv.is_tiled ? 16 : 1;
  unsigned char* begin = kv.data + head * kv.head_bytes + (position - lane_in_tile) * kv.row_bytes;
  for (int first = warp() * kWarp; first < kv.d; first += n_threads()) {
    const int c = first + lane();
    const float value = c < kv.d ? x[c] : 0.0f;
    const std::int64_t at = c * step + lane_in_tile;
    if (kv.element == KvElement::Q8) {
      const float top = warp_max(abs(value));
      // Not a number takes the other 31 with it; warp_max() may lose it.
      const bool is_finite = warp_max(abs(value) <= 3.4e38f ? 0.0f : 1.0f) == 0;
      const std::uint32_t scale = is_finite ? to_bfloat_upwards(top / 127) : 0x7FC0u;
      const float unit = float_of(scale << 16);
      if (c < kv.d)
        begin[at] = static_cast<unsigned char>(is_finite && unit > 0 ? to_int(value / unit) : 0);
      if (lane() == 0) {
        unsigned char* to = begin + kv.d * step + 2 * (first / kWarp * step + lane_in_tile);
        to[0] = static_cast<unsigned char>(scale);  // of an odd number of values, at odd addresses
        to[1] = static_cast<unsigned char>(scale >> 8);
      }
    } else if (c < kv.d) {
      if (kv.element == KvElement::F32)
        reinterpret_cast<float*>(begin)[at] = value;
      else
        reinterpret_cast<std::uint16_t*>(begin)[at] =
            kv.element == KvElement::F16 ? nearest_half(value) : nearest_bfloat(value);
    }
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
