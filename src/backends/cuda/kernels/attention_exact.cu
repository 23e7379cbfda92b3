// Attention in plain f32, for every shape and type of cache.
#include "backends/cuda/kernels/attention_parts.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

GPU_INLINE float max_of_16(float value) {
  GPU_UNROLL
  for (int mask = 8; mask > 0; mask /= 2) value = max(value, shuffle_xor(value, mask));
  return value;
}
GPU_INLINE float sum_of_16(float value) {
  GPU_UNROLL
  for (int mask = 8; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// Blocks: tiles of queries and groups, pieces. Values in up to kColumns x 256 columns. For scores,
// a thread takes one query and one of 16 keys; for values, columns of some queries.
template <int kColumns>
GPU_INLINE void attend_exactly(const AttentionParams& p) {
  GPU_SHARED float weights[kExactQueries][kKvTile + 1];
  GPU_SHARED float factors[kExactQueries];
  GPU_SHARED SoftmaxSum sums[kExactQueries];
  const int group = block_x() % p.n_groups, first = block_x() / p.n_groups * kExactQueries;
  const int n_queries = p.n * p.heads_per_group, piece = block_y();
  const int last = first + kExactQueries < n_queries ? first + kExactQueries : n_queries;
  const int stride = p.d | 1;
  float* queries = reinterpret_cast<float*>(dynamic_shared());
  float* keys = queries + kExactQueries * stride;
  float* values = p.values_are_keys ? keys : keys + kKvTile * stride;
  const int value_stride = p.values_are_keys ? stride : p.d_value;

  for (int j = warp(); j < kExactQueries; j += kExactThreads / kWarp) {
    const Query query = query_of(p, group, first + j);
    for (int c = lane(); c < p.d; c += kWarp)
      queries[j * stride + c] = first + j < last ? query_value(p, query, c) : 0.0f;
  }
  const int own = thread() / kKvTile, own_key = thread() % kKvTile;
  const bool is_there = first + own < last;
  const int own_position = is_there ? p.positions[(first + own) / p.heads_per_group] : -1;
  const int own_begin = p.window > 0 ? own_position - p.window + 1 : 0;
  SoftmaxSum sum{kNothing, 0};

  // Columns of values: all threads, or parts of them that take every n_sharers-th query.
  const int width = p.d_value >= kExactThreads ? kExactThreads : (p.d_value + 31) / 32 * 32;
  const int n_sharers = kExactThreads / width;
  const int sharer = thread() / width, column = thread() % width;
  float out[kColumns][kExactQueries];
  GPU_UNROLL
  for (int k = 0; k < kColumns; ++k) {
    GPU_UNROLL
    for (int i = 0; i < kExactQueries; ++i) out[k][i] = 0;
  }

  const Seen seen = seen_by(p, first / p.heads_per_group, (last - 1) / p.heads_per_group);
  for (int block = next_block(p, seen.begin / kExactKeyBlock, piece);
       block * kExactKeyBlock < seen.end; block += p.n_pieces) {
    for (int position = block * kExactKeyBlock; position < (block + 1) * kExactKeyBlock;
         position += kKvTile) {
      if (position >= seen.end || position + kKvTile <= seen.begin) continue;
      sync();
      load_tile(p.k, group, position, seen.end, p.d, stride, keys);
      if (!p.values_are_keys)
        load_tile(p.v, group, position, seen.end, p.d_value, p.d_value, values);
      sync();
      float dot = 0;
      for (int c = 0; c < p.d; ++c) dot += queries[own * stride + c] * keys[own_key * stride + c];
      const int at = position + own_key;
      const float score = at <= own_position && at >= own_begin ? dot * p.scale : kNothing;
      const float top = max(sum.max, max_of_16(score));
      const float weight = score == kNothing ? 0.0f : exp2(score - top);
      const float factor = top == kNothing ? 1.0f : exp2(sum.max - top);
      sum = {top, sum.sum * factor + sum_of_16(weight)};
      weights[own][own_key] = weight;
      if (own_key == 0) factors[own] = factor;
      sync();
      if (sharer >= n_sharers) continue;
      GPU_UNROLL
      for (int i = 0; i < kExactQueries; ++i) {
        const int query = sharer + i * n_sharers;
        if (query >= kExactQueries) break;
        const float of_query = factors[query];
        GPU_UNROLL
        for (int k = 0; k < kColumns; ++k) {
          const int c = column + k * kExactThreads;
          if (c >= p.d_value) break;
          float value = out[k][i] * of_query;
          for (int key = 0; key < kKvTile; ++key)
            value += weights[query][key] * values[key * value_stride + c];
          out[k][i] = value;
        }
      }
    }
  }
  if (own_key == 0) sums[own] = sum;
  sync();
  if (p.parts != nullptr && thread() < last - first)
    p.sums[part_of(p, piece, query_of(p, group, first + thread()))] = sums[thread()];
  if (sharer >= n_sharers) return;
  GPU_UNROLL
  for (int i = 0; i < kExactQueries; ++i) {
    const int j = sharer + i * n_sharers;
    if (j >= last - first) break;
    const Query query = query_of(p, group, first + j);
    const float factor = p.parts == nullptr ? last_factor(p, query.head, sums[j]) : 1.0f;
    GPU_UNROLL
    for (int k = 0; k < kColumns; ++k) {
      const int c = column + k * kExactThreads;
      if (c >= p.d_value) break;
      if (p.parts == nullptr) {
        finish_value(p, query, c, out[k][i] * factor);
      } else {
        p.parts[part_of(p, piece, query) * p.d_value + c] = out[k][i];
      }
    }
  }
}

}  // namespace

GPU_KERNEL(attend_exactly_256, AttentionParams, kExactThreads) {
  attend_exactly<1>(p);
}
GPU_KERNEL(attend_exactly_1024, AttentionParams, kExactThreads) {
  attend_exactly<4>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
