// Attention of many tokens: a warp has 16 or 32 queries and goes through all keys that they see, 64
// at a time, with products of halves. While it multiplies with values the next keys are copied into
// shared memory, and values while it scores.
//
// Queries of all heads that share keys stand side by side, so a block of 128 is few tokens of a
// group of many heads.
#pragma once

#include "backends/cuda/kernels/attention_parts.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// kD and kValues: of a key and a value. kRows: rows of 16 queries of a warp. kIsStaged: keys and
// values are copies, with factors.
template <int kD, int kValues, int kRows, int kKeys, bool kIsStaged>
struct ManyTokens {
  static constexpr int kThreads = many_tokens_threads(kD, kKeys);
  static constexpr int kStride = kD + 8;  // of queries, in halves
  static constexpr float kShift = 6;      // weights are at most 2^6: small ones are normal halves
  static constexpr int kKeyBytes = kKeys * kD * 2, kValueBytes = kKeys * kValues * 2;

  GPU_INLINE ManyTokens(const ManyTokensParams& params, int of_group)
      : all(params), p(params.attention), group(of_group) {}

  const ManyTokensParams& all;
  const AttentionParams& p;
  int group, first;         // query of this warp
  int n_here;               // queries of it
  int own_first, own_last;  // positions: what all of them see, and some
  std::uint16_t* queries;   // of this warp
  unsigned char *keys, *values;
  float *key_factors, *value_factors;  // of tiles

  float scores[kRows][kKeys / 8][4];
  float out[kRows][kValues / 8][4];
  float top[kRows][2], sum[kRows][2];
  float query_factor[kRows][2];
  int last_seen[kRows][2];

  GPU_INLINE void copy_keys(int position, int end) const {
    constexpr int kTileChunks = 2 * kD, kChunks = kKeys / kKvTile * kTileChunks;
    const int own = thread();
    const unsigned char* from = p.k.data + group * p.k.head_bytes +
                                std::int64_t{position - all.begin} * (2 * kD) + own * 16;
    unsigned char* to = keys + (own ^ (own >> 3 & 1)) * 16;
    if (position + kKeys <= end) {
      GPU_UNROLL
      for (int i = 0; i < kChunks; i += kThreads) copy_16(to + i * 16, from + i * 16);
    } else {
      for (int i = 0; i < kChunks; i += kThreads) {
        const bool is_there = position + (i + own) / kTileChunks * kKvTile < end;
        copy_up_to_16(to + i * 16, is_there ? from + i * 16 : p.k.data, is_there ? 16 : 0);
      }
    }
    if (kIsStaged && own < kKeys / kKvTile)
      copy_factor(all.key_factors, key_factors, position, end);
  }
  GPU_INLINE void copy_values(int position, int end) const {
    constexpr int kRowChunks = kValues / 8, kRowsAtOnce = kThreads / kRowChunks;
    const int own = thread(), own_row = own / kRowChunks, chunk = own % kRowChunks;
    const unsigned char* from = p.v.data + group * p.v.head_bytes +
                                std::int64_t{position - all.begin} * (2 * kValues) + own * 16;
    unsigned char* to = values + own_row * (2 * kValues);
    const bool is_whole = position + kKeys <= end;
    GPU_UNROLL
    for (int row = 0; row < kKeys; row += kRowsAtOnce) {
      unsigned char* place = to + row * (2 * kValues) + (chunk ^ ((row + own_row) & 7)) * 16;
      if (is_whole) {
        copy_16(place, from + row * (2 * kValues));
      } else {
        const bool is_there = position + row + own_row < end;
        copy_up_to_16(place, is_there ? from + row * (2 * kValues) : p.v.data, is_there ? 16 : 0);
      }
    }
    if (kIsStaged && own < kKeys / kKvTile)
      copy_factor(all.value_factors, value_factors, position, end);
  }
  GPU_INLINE void copy_factor(const float* from, float* to, int position, int end) const {
    const int i = thread(), at = position + i * kKvTile;
    to[i] = from == nullptr ? 1.0f
            : at < end      ? from[group * all.factors_head + (at - all.begin) / kKvTile]
                            : 0.0f;
  }

  GPU_INLINE void load_queries(float* factors) {
    constexpr int kAtOnce = kD <= 64 ? 16 : 8;
    for (int begin = 0; begin < kRows * 16; begin += kAtOnce) {
      float q[kAtOnce][kD / kWarp];
      GPU_UNROLL
      for (int k = 0; k < kAtOnce; ++k)
        load_query(p, query_of(p, group, first + begin + k), begin + k < n_here, q[k]);
      GPU_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const QueryScale scale = scale_of(q[k]);
        if (lane() == 0) factors[begin + k] = scale.up * p.scale;
        GPU_UNROLL
        for (int i = 0; i < kD / kWarp; ++i)
          queries[(begin + k) * kStride + i * kWarp + lane()] = to_half(q[k][i] * scale.down);
      }
    }
    sync_warp();
    GPU_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GPU_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int j = r * 16 + h * 8 + lane() / 4;
        query_factor[r][h] = factors[j];
        last_seen[r][h] = j < n_here ? p.positions[(first + j) / p.heads_per_group] : -1;
      }
    }
  }

  GPU_INLINE void score(int position) {
    GPU_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GPU_UNROLL
      for (int i = 0; i < kKeys / 8; ++i) {
        GPU_UNROLL
        for (int e = 0; e < 4; ++e) scores[r][i][e] = 0;
      }
    }
    const int row = lane() % 16, half = lane() / 16;
    const unsigned char* lane_keys = keys + (2 * row + (half ^ (row >> 2 & 1))) * 16;
    const std::uint16_t* lane_queries = queries + row * kStride + half * 8;
    GPU_UNROLL
    for (int step = 0; step < kD / 16; ++step) {
      std::uint32_t a[kRows][4];
      GPU_UNROLL
      for (int r = 0; r < kRows; ++r)
        load_matrices(a[r], lane_queries + r * 16 * kStride + step * 16);
      GPU_UNROLL
      for (int tile = 0; tile < kKeys / 16; ++tile) {
        std::uint32_t b[4];
        load_matrices_transposed(b, lane_keys + (tile * kD + step * 16) * 32);
        const std::uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
        GPU_UNROLL
        for (int r = 0; r < kRows; ++r) {
          multiply_halves(scores[r][2 * tile], a[r], left);
          multiply_halves(scores[r][2 * tile + 1], a[r], right);
        }
      }
    }
    if constexpr (kIsStaged) {
      GPU_UNROLL
      for (int tile = 0; tile < kKeys / 16; ++tile) {
        const float factor = key_factors[tile];
        GPU_UNROLL
        for (int r = 0; r < kRows; ++r) {
          GPU_UNROLL
          for (int e = 0; e < 8; ++e) scores[r][2 * tile + e / 4][e % 4] *= factor;
        }
      }
    }
    // Only where some query does not see all of them.
    if (position + kKeys - 1 <= own_first && (p.window == 0 || position > own_last - p.window))
      return;
    GPU_UNROLL
    for (int i = 0; i < kKeys / 8; ++i) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int at = position + i * 8 + lane() % 4 * 2 + e % 2;
        GPU_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const int last = last_seen[r][e / 2];
          if (at > last || (p.window > 0 && at <= last - p.window)) scores[r][i][e] = kNothing;
        }
      }
    }
  }

  GPU_INLINE void weigh() {
    GPU_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float most[2] = {kNothing, kNothing};
      GPU_UNROLL
      for (int i = 0; i < kKeys / 8; ++i) {
        GPU_UNROLL
        for (int e = 0; e < 4; ++e) most[e / 2] = max(most[e / 2], scores[r][i][e]);
      }
      float factor[2];
      GPU_UNROLL
      for (int h = 0; h < 2; ++h) {
        float highest = max(most[h], shuffle_xor(most[h], 1));
        highest = max(highest, shuffle_xor(highest, 2)) * query_factor[r][h];
        highest = max(highest, top[r][h]);
        const float base = highest == kNothing ? 0.0f : highest;
        factor[h] = exp2(top[r][h] - base);
        top[r][h] = highest;
        sum[r][h] *= factor[h];
        most[h] = base - kShift;
      }
      GPU_UNROLL
      for (int i = 0; i < kKeys / 8; ++i) {
        GPU_UNROLL
        for (int e = 0; e < 4; ++e) {
          scores[r][i][e] = exp2(scores[r][i][e] * query_factor[r][e / 2] - most[e / 2]);
          sum[r][e / 2] += scores[r][i][e];
        }
      }
      if (any_lane(factor[0] != 1.0f || factor[1] != 1.0f)) {
        GPU_UNROLL
        for (int i = 0; i < kValues / 8; ++i) {
          GPU_UNROLL
          for (int e = 0; e < 4; ++e) out[r][i][e] *= factor[e / 2];
        }
      }
    }
  }

  GPU_INLINE void add_values() {
    const int row = lane() % 16;
    const unsigned char* lane_values = values + row * (2 * kValues);
    const int turn = ((lane() / 16) ^ (lane() & 7)) * 16;
    GPU_UNROLL
    for (int step = 0; step < kKeys / 16; ++step) {
      const float factor = kIsStaged ? value_factors[step] : 1.0f;
      std::uint32_t a[kRows][4];
      GPU_UNROLL
      for (int r = 0; r < kRows; ++r) {
        GPU_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float* two = &scores[r][2 * step + i / 2][i % 2 * 2];
          a[r][i] =
              kIsStaged ? to_half2(two[0] * factor, two[1] * factor) : to_half2(two[0], two[1]);
        }
      }
      GPU_UNROLL
      for (int j = 0; j < kValues / 16; ++j) {
        std::uint32_t b[4];
        load_matrices_transposed(b, lane_values + step * 16 * (2 * kValues) + (turn ^ j * 32));
        const std::uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
        GPU_UNROLL
        for (int r = 0; r < kRows; ++r) {
          multiply_halves(out[r][2 * j], a[r], left);
          multiply_halves(out[r][2 * j + 1], a[r], right);
        }
      }
    }
  }

  GPU_INLINE void begin(bool continues) {
    GPU_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GPU_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int j = r * 16 + h * 8 + lane() / 4;
        const bool is_there = continues && j < n_here;
        const Query query = query_of(p, group, is_there ? first + j : first);
        top[r][h] = kNothing;
        sum[r][h] = 0;
        if (is_there) {
          const SoftmaxSum before = p.sums[part_of(p, 0, query)];
          top[r][h] = before.max;
          if (lane() % 4 == 0) sum[r][h] = before.sum;
        }
        const float* from = p.out + query.token * p.out_stride + query.head * p.out_head;
        GPU_UNROLL
        for (int i = 0; i < kValues / 8; ++i) {
          GPU_UNROLL
          for (int e = 0; e < 2; ++e) {
            out[r][i][2 * h + e] = 0;
            if constexpr (kIsStaged) {
              const int c = i * 8 + lane() % 4 * 2 + e;
              if (is_there && c < p.d_value) out[r][i][2 * h + e] = from[c];
            }
          }
        }
      }
    }
  }

  GPU_INLINE void finish(bool is_last) {
    const int piece = block_y();
    GPU_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GPU_UNROLL
      for (int h = 0; h < 2; ++h) {
        float total = sum[r][h] + shuffle_xor(sum[r][h], 1);
        total += shuffle_xor(total, 2);
        const int j = r * 16 + h * 8 + lane() / 4;
        if (j >= n_here) continue;
        const Query query = query_of(p, group, first + j);
        const std::int64_t part = part_of(p, piece, query);
        const bool ends = is_last && p.parts == nullptr;
        // Weights of a part are relative to what it calls its largest score.
        const float shifted = top[r][h] == kNothing ? kNothing : top[r][h] - kShift;
        const float factor = ends ? last_factor(p, query.head, {shifted, total}) : 1.0f;
        if (!ends && lane() % 4 == 0)
          p.sums[part] = {p.parts == nullptr ? top[r][h] : shifted, total};
        float* to = p.parts == nullptr
                        ? p.out + query.token * p.out_stride + query.head * p.out_head
                        : p.parts + part * p.d_value;
        const float* gate = ends && p.gate != nullptr
                                ? p.gate + query.token * p.q_stride + query.head * p.q_head
                                : nullptr;
        to += lane() % 4 * 2;
        if (gate != nullptr) gate += lane() % 4 * 2;
        GPU_UNROLL
        for (int i = 0; i < kValues / 8; ++i) {
          GPU_UNROLL
          for (int e = 0; e < 2; ++e) {
            const int c = i * 8 + e;
            if (kIsStaged && c + lane() % 4 * 2 >= p.d_value) continue;
            const float value = out[r][i][2 * h + e] * factor;
            to[c] = gate == nullptr ? value : value * sigmoid(gate[c]);
          }
        }
      }
    }
  }
};

// Blocks: tiles of queries and groups, the longest first; pieces.
template <int kD, int kValues, int kRows, int kKeys, bool kIsStaged>
GPU_INLINE void attend_many(const ManyTokensParams& all) {
  using Work = ManyTokens<kD, kValues, kRows, kKeys, kIsStaged>;
  constexpr int kOfWarp = kRows * 16, kTiles = kKeys / kKvTile;
  GPU_SHARED float query_factors[128];
  GPU_SHARED float factors[2 * kTiles];
  const AttentionParams& p = all.attention;
  constexpr int n_warps = Work::kThreads / kWarp;
  const int n_queries = p.n * p.heads_per_group;
  const int group = block_x() % p.n_groups;
  const int first = (n_blocks_x() - 1 - block_x()) / p.n_groups * n_warps * kOfWarp;
  const int most = first + n_warps * kOfWarp;
  const int last = (most < n_queries ? most : n_queries) - 1;
  const Seen seen = seen_by(p, first / p.heads_per_group, last / p.heads_per_group);
  const int begin = seen.begin > all.begin ? seen.begin : all.begin;
  const int end = seen.end < all.end ? seen.end : all.end;
  int position = next_block(p, begin / kKeys, block_y()) * kKeys;
  if (position >= end) return;

  Work work(all, group);
  work.first = first + warp() * kOfWarp;
  const int left = n_queries - work.first;
  work.n_here = left < 0 ? 0 : left < kOfWarp ? left : kOfWarp;
  const int own_last = work.n_here == 0 ? first : work.first + work.n_here - 1;
  work.own_first = p.positions[(work.n_here == 0 ? first : work.first) / p.heads_per_group];
  work.own_last = p.positions[own_last / p.heads_per_group];
  work.keys = dynamic_shared();
  work.values = work.keys + Work::kKeyBytes;
  work.queries = reinterpret_cast<std::uint16_t*>(work.values + Work::kValueBytes) +
                 warp() * kOfWarp * Work::kStride;
  work.key_factors = factors;
  work.value_factors = factors + kTiles;

  const int step = p.n_pieces * kKeys;
  work.copy_keys(position, end);
  close_copies();
  work.copy_values(position, end);
  close_copies();
  work.load_queries(query_factors + warp() * kOfWarp);
  work.begin(seen.begin < all.begin);
  await_copies<1>();
  sync();
  for (; position < end; position += step) {
    const int next = position + step;
    const bool sees = work.n_here > 0 && position <= work.own_last &&
                      (p.window == 0 || position + kKeys > work.own_first - p.window + 1);
    if (sees) work.score(position);
    await_copies<0>();
    sync();
    if (next < end) work.copy_keys(next, end);
    close_copies();
    if (sees) {
      work.weigh();
      work.add_values();
    }
    await_copies<0>();
    sync();
    if (next < end) work.copy_values(next, end);
    close_copies();
  }
  work.finish(seen.end <= all.end);
}

}  // namespace moeflux::gpu
GPU_CODE_END
