// What kernels of attention share: queries, what they see, and how they end.
#pragma once

#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/kernels/gpu.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

inline constexpr float kNothing = -__builtin_inff();  // the score of what is not seen

// One of a group.
struct Query {
  int token, head;
};
GPU_INLINE Query query_of(const AttentionParams& p, int group, int j) {
  return {j / p.heads_per_group, group * p.heads_per_group + j % p.heads_per_group};
}
GPU_INLINE float query_value(const AttentionParams& p, const Query& query, int c) {
  return c < p.d_first
             ? p.q[query.token * p.q_stride + query.head * p.q_head + c]
             : p.q_rest[query.token * p.rest_stride + query.head * p.rest_head + c - p.d_first];
}

// A query in the registers of a warp: value i * 32 + lane in q[i].
template <int kCount>
GPU_INLINE void load_query(const AttentionParams& p, const Query& query, bool is_there,
                           float (&q)[kCount]) {
  GPU_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const int c = i * kWarp + lane();
    q[i] = is_there && c < p.d ? query_value(p, query, c) : 0.0f;
  }
}
// Powers of two that bring a query into the range of halves, and its scores back.
struct QueryScale {
  float down, up;
};
template <int kCount>
GPU_INLINE QueryScale scale_of(const float (&q)[kCount]) {
  float most = 0;
  GPU_UNROLL
  for (int i = 0; i < kCount; ++i) most = max(most, abs(q[i]));
  int exponent = static_cast<int>(bits_of(warp_max(most)) >> 23 & 0xFFu);
  exponent = exponent < 1 ? 127 : exponent > 253 ? 253 : exponent;
  return {float_of(static_cast<std::uint32_t>(254 - exponent) << 23),
          float_of(static_cast<std::uint32_t>(exponent) << 23)};
}

// Positions [begin, end) that tokens first to last see.
struct Seen {
  int begin, end;
};
GPU_INLINE Seen seen_by(const AttentionParams& p, int first, int last) {
  const int begin = p.window > 0 ? p.positions[first] - p.window + 1 : 0;
  return {begin > 0 ? begin : 0, p.positions[last] + 1};
}
// Block b of keys at or behind `block` that belongs to a piece.
GPU_INLINE int next_block(const AttentionParams& p, int block, int piece) {
  const int off = (piece - block % p.n_pieces + p.n_pieces) % p.n_pieces;
  return block + off;
}

// What weighted values of a query are multiplied with in the end.
GPU_INLINE float last_factor(const AttentionParams& p, int head, SoftmaxSum sum) {
  if (p.sinks == nullptr) return 1.0f / sum.sum;
  const float sink = p.sinks[head] * 1.4426950408889634f;
  const float top = max(sum.max, sink);
  const float factor = exp2(sum.max - top);
  return factor / (sum.sum * factor + exp2(sink - top));
}
GPU_INLINE void finish_value(const AttentionParams& p, const Query& query, int c, float value) {
  if (p.gate != nullptr)
    value *= sigmoid(p.gate[query.token * p.q_stride + query.head * p.q_head + c]);
  p.out[query.token * p.out_stride + query.head * p.out_head + c] = value;
}
GPU_INLINE std::int64_t part_of(const AttentionParams& p, int piece, const Query& query) {
  return (std::int64_t{piece} * p.n + query.token) * (p.n_groups * p.heads_per_group) + query.head;
}

// One number of a cache; `tile` is where the 16 positions begin.
GPU_INLINE float kv_value(const DeviceKv& kv, const unsigned char* tile, int position, int c) {
  const std::int64_t at = kv.is_tiled ? c * kKvTile + position : c;
  const unsigned char* begin = kv.is_tiled ? tile : tile + position * kv.row_bytes;
  switch (kv.element) {
    case KvElement::F32:
      return reinterpret_cast<const float*>(begin)[at];
    case KvElement::F16:
      return from_half(reinterpret_cast<const std::uint16_t*>(begin)[at]);
    case KvElement::BF16:
      return from_bfloat(reinterpret_cast<const std::uint16_t*>(begin)[at]);
    default: {
      // Rows of an odd length begin at odd addresses.
      const unsigned char* scale = kv.is_tiled
                                       ? begin + kv.d * kKvTile + 2 * (c / 32 * kKvTile + position)
                                       : begin + kv.d + 2 * (c / 32);
      return static_cast<float>(static_cast<std::int8_t>(begin[at])) *
             from_bfloat(static_cast<std::uint16_t>(scale[0] | scale[1] << 8));
    }
  }
}

// Puts 16 positions into shared rows of `stride` floats; what lies at `end` and behind is zero.
GPU_INLINE void load_tile(const DeviceKv& kv, int group, int position, int end, int d, int stride,
                          float* rows) {
  const unsigned char* tile =
      kv.data + group * kv.head_bytes + std::int64_t{position} * kv.row_bytes;
  if (kv.is_tiled) {
    const int lane = thread() % kKvTile;
    for (int c = thread() / kKvTile; c < d; c += n_threads() / kKvTile)
      rows[lane * stride + c] = position + lane < end ? kv_value(kv, tile, lane, c) : 0.0f;
  } else {
    for (int i = warp(); i < kKvTile; i += n_threads() / kWarp) {
      for (int c = lane(); c < d; c += kWarp)
        rows[i * stride + c] = position + i < end ? kv_value(kv, tile, i, c) : 0.0f;
    }
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
