// Attention over latents in the absorbed form: one row is the key of all heads, and its first
// values are their value. So queries of 64 heads, or of 16, share a tile of rows in shared memory:
// the warps of a block first share the scores, then the columns of the values.
//
// Rows of f16 are copied as they are, one tile ahead; others are copied as stored and then become
// halves. What is beyond the range of halves becomes their largest number: latents are normed.
#include "backends/cuda/kernels/attention_parts.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

constexpr float kShift = 6;  // weights are at most 2^6: small ones are still normal halves

GPU_INLINE float in_range(float x) {
  return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x;
}

// kRows: 16 queries each, 4 or 1. kIsWhole: of the usual size.
template <int kRows, bool kIsWhole>
struct Latents {
  static constexpr int kM = kRows * 16, kKeys = latent_keys(kRows);
  static constexpr int kOwnRows = kRows == 4 ? 2 : 1;   // of values, of this warp
  static constexpr int kSlice = kRows == 4 ? 128 : 64;  // columns of values, of this warp
  static constexpr int kScoreStride = kKeys + 4, kWeightStride = kKeys + 8;
  static constexpr int kSharers = kLatentThreads / kM;  // threads that weigh for one query
  static constexpr int kOwnKeys = kKeys / kSharers;

  GPU_INLINE explicit Latents(const AttentionParams& params) : p(params) {}

  const AttentionParams& p;
  int first, n_here;
  std::uint16_t *queries, *tile, *weights;
  float *scores, *factors, *query_factors;
  unsigned char* raw;
  float out[kOwnRows][kSlice / 8][4];
  SoftmaxSum sum{kNothing, 0};
  int last_seen;

  GPU_INLINE int d() const { return kIsWhole ? kUsualLatent : (p.d + 15) / 16 * 16; }
  GPU_INLINE int d_value() const { return kIsWhole ? kUsualRank : p.d_value; }
  GPU_INLINE int stride() const { return d() + 8; }
  GPU_INLINE bool is_direct() const { return p.k.element == KvElement::F16 && p.d % 16 == 0; }

  GPU_INLINE void load_queries() const {
    constexpr int kAtOnce = kRows == 4 ? 4 : 2, kWarps = kLatentThreads / kWarp;
    constexpr int kCount = kUsualLatent / kWarp;
    for (int begin = warp(); begin < kM; begin += kAtOnce * kWarps) {
      float q[kAtOnce][kCount];
      GPU_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const int j = begin + k * kWarps;
        load_query(p, query_of(p, 0, first + j), j < n_here, q[k]);
      }
      GPU_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const int j = begin + k * kWarps;
        const QueryScale scale = scale_of(q[k]);
        if (lane() == 0) query_factors[j] = scale.up * p.scale;
        GPU_UNROLL
        for (int i = 0; i < kCount; ++i) {
          const int c = i * kWarp + lane();
          if (kIsWhole || c < d()) queries[j * stride() + c] = to_half(q[k][i] * scale.down);
        }
      }
    }
  }

  // ---- rows

  GPU_INLINE void copy_rows(int position, int end, int buffer) const {
    const int row_bytes = static_cast<int>(p.k.row_bytes);
    const unsigned char* from = p.k.data + std::int64_t{position} * p.k.row_bytes;
    if (is_direct()) {
      const int n_chunks = d() / 8;
      for (int row = warp(); row < kKeys; row += kLatentThreads / kWarp) {
        const int bytes = position + row < end ? 16 : 0;
        std::uint16_t* to = tile + (buffer * kKeys + row) * stride();
        for (int i = lane(); i < n_chunks; i += kWarp)
          copy_up_to_16(to + i * 8, from + (bytes == 0 ? 0 : row * row_bytes + i * 16), bytes);
      }
    } else {
      const int stored = (end - position) * row_bytes;
      for (int i = thread(); i < kKeys * row_bytes / 16; i += kLatentThreads) {
        const int left = stored - i * 16, bytes = left < 0 ? 0 : left > 16 ? 16 : left;
        copy_up_to_16(raw + i * 16, from + (bytes == 0 ? 0 : i * 16), bytes);
      }
    }
  }
  // Rows that have been copied become halves.
  GPU_INLINE void convert() const {
    for (int row = warp(); row < kKeys; row += kLatentThreads / kWarp) {
      const unsigned char* from = raw + row * static_cast<int>(p.k.row_bytes);
      for (int c = lane(); c < d(); c += kWarp)
        tile[row * stride() + c] = to_half(c < p.d ? in_range(kv_value(p.k, from, 0, c)) : 0.0f);
    }
  }

  // ---- scores

  // 64 queries: a warp has 16 queries and 16 keys. 16 queries: a warp has an eighth of their
  // values.
  GPU_INLINE void score(const std::uint16_t* rows) const {
    constexpr int kSteps = kRows == 4 ? 1 : kLatentThreads / kWarp;
    const int query = kRows == 4 ? warp() % 4 * 16 : 0, key = kRows == 4 ? warp() / 4 * 16 : 0;
    const std::uint16_t* a_row = queries + (query + lane() % 16) * stride() + lane() / 16 * 8;
    const std::uint16_t* b_row =
        rows + (key + lane() / 16 * 8 + lane() % 8) * stride() + lane() / 8 % 2 * 8;
    float sums[2][4] = {};
    const auto multiply = [&](int step) {
      std::uint32_t a[4], b[4];
      load_matrices(a, a_row + step * 16);
      load_matrices(b, b_row + step * 16);
      multiply_halves(sums[0], a, {b[0], b[1]});
      multiply_halves(sums[1], a, {b[2], b[3]});
    };
    if constexpr (kIsWhole && kRows == 4) {
      GPU_UNROLL
      for (int step = 0; step < kUsualLatent / 16; ++step) multiply(step);
    } else {
      for (int step = kRows == 4 ? 0 : warp(); step < d() / 16; step += kSteps) multiply(step);
    }
    float* to = scores + (kRows == 4 ? query : warp() * 16) * kScoreStride + key;
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e)
        to[(lane() / 4 + e / 2 * 8) * kScoreStride + i * 8 + lane() % 4 * 2 + e % 2] = sums[i][e];
    }
  }

  GPU_INLINE void weigh(int position) {
    const int query = thread() / kSharers, sharer = thread() % kSharers;
    float own[kOwnKeys];
    float most = sum.max;
    GPU_UNROLL
    for (int i = 0; i < kOwnKeys; ++i) {
      const int key = sharer + i * kSharers;
      float score = 0;
      if constexpr (kRows == 4) {
        score = scores[query * kScoreStride + key];
      } else {
        GPU_UNROLL
        for (int w = 0; w < kLatentThreads / kWarp; ++w)
          score += scores[(w * 16 + query) * kScoreStride + key];
      }
      own[i] = position + key <= last_seen ? score * query_factors[query] : kNothing;
      most = max(most, own[i]);
    }
    GPU_UNROLL
    for (int mask = 1; mask < kSharers; mask *= 2) most = max(most, shuffle_xor(most, mask));
    const float base = most == kNothing ? 0.0f : most;
    const float factor = exp2(sum.max - base);
    float all = 0;
    GPU_UNROLL
    for (int i = 0; i < kOwnKeys; ++i) {
      const float weight = exp2(own[i] - (base - kShift));
      weights[query * kWeightStride + sharer + i * kSharers] = to_half(weight);
      all += weight;
    }
    GPU_UNROLL
    for (int mask = 1; mask < kSharers; mask *= 2) all += shuffle_xor(all, mask);
    sum = {most, sum.sum * factor + all};
    if (sharer == 0) factors[query] = factor;
  }

  // ---- values

  GPU_INLINE int own_query() const { return kRows == 4 ? warp() % 2 * 32 : 0; }
  GPU_INLINE int own_column() const { return (kRows == 4 ? warp() / 2 : warp()) * kSlice; }

  GPU_INLINE void add_values(const std::uint16_t* rows) {
    float factor[kOwnRows][2];
    bool changes = false;
    GPU_UNROLL
    for (int r = 0; r < kOwnRows; ++r) {
      GPU_UNROLL
      for (int h = 0; h < 2; ++h) {
        factor[r][h] = factors[own_query() + r * 16 + h * 8 + lane() / 4];
        changes = changes || factor[r][h] != 1.0f;
      }
    }
    if (any_lane(changes)) {
      GPU_UNROLL
      for (int r = 0; r < kOwnRows; ++r) {
        GPU_UNROLL
        for (int i = 0; i < kSlice / 8; ++i) {
          GPU_UNROLL
          for (int e = 0; e < 4; ++e) out[r][i][e] *= factor[r][e / 2];
        }
      }
    }
    GPU_UNROLL
    for (int step = 0; step < kKeys / 16; ++step) {
      std::uint32_t a[kOwnRows][4];
      GPU_UNROLL
      for (int r = 0; r < kOwnRows; ++r)
        load_matrices(a[r], weights + (own_query() + r * 16 + lane() % 16) * kWeightStride +
                                step * 16 + lane() / 16 * 8);
      const std::uint16_t* row =
          rows + (step * 16 + lane() % 16) * stride() + own_column() + lane() / 16 * 8;
      GPU_UNROLL
      for (int j = 0; j < kSlice / 16; ++j) {
        if (!kIsWhole && own_column() + j * 16 >= d()) break;
        std::uint32_t b[4];
        load_matrices_transposed(b, row + j * 16);
        GPU_UNROLL
        for (int r = 0; r < kOwnRows; ++r) {
          multiply_halves(out[r][2 * j], a[r], {b[0], b[1]});
          multiply_halves(out[r][2 * j + 1], a[r], {b[2], b[3]});
        }
      }
    }
  }

  GPU_INLINE void finish(SoftmaxSum* sums) const {
    if (thread() % kSharers == 0)
      sums[thread() / kSharers] = {sum.max == kNothing ? kNothing : sum.max - kShift, sum.sum};
    sync();
    GPU_UNROLL
    for (int r = 0; r < kOwnRows; ++r) {
      GPU_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int j = own_query() + r * 16 + h * 8 + lane() / 4;
        if (j >= n_here) continue;
        const Query query = query_of(p, 0, first + j);
        const std::int64_t part = part_of(p, block_y(), query);
        const float factor = p.parts == nullptr ? last_factor(p, query.head, sums[j]) : 1.0f;
        float* to = p.parts == nullptr
                        ? p.out + query.token * p.out_stride + query.head * p.out_head
                        : p.parts + part * p.d_value;
        if (p.parts != nullptr && own_column() == 0 && lane() % 4 == 0) p.sums[part] = sums[j];
        const int begin = own_column() + lane() % 4 * 2;
        GPU_UNROLL
        for (int i = 0; i < kSlice / 8; ++i) {
          GPU_UNROLL
          for (int e = 0; e < 2; ++e) {
            const int c = begin + i * 8 + e;
            if (kIsWhole || c < p.d_value) to[c] = out[r][i][2 * h + e] * factor;
          }
        }
      }
    }
  }
};

// Blocks: tiles of queries, pieces.
template <int kRows, bool kIsWhole>
GPU_INLINE void attend_latents(const AttentionParams& p) {
  using Work = Latents<kRows, kIsWhole>;
  GPU_SHARED SoftmaxSum sums[Work::kM];
  GPU_SHARED float factors[Work::kM];
  GPU_SHARED float query_factors[Work::kM];
  constexpr int kKeys = Work::kKeys;
  const int n_queries = p.n * p.heads_per_group;
  const int first = (n_blocks_x() - 1 - block_x()) * Work::kM;
  const int n_here = n_queries - first < Work::kM ? n_queries - first : Work::kM;
  const int end =
      seen_by(p, first / p.heads_per_group, (first + n_here - 1) / p.heads_per_group).end;
  int position = block_y() * kKeys;
  if (position >= end) return;

  Work work(p);
  work.first = first;
  work.n_here = n_here;
  work.factors = factors;
  work.query_factors = query_factors;
  work.queries = reinterpret_cast<std::uint16_t*>(dynamic_shared());
  work.tile = work.queries + Work::kM * work.stride();
  const bool is_direct = work.is_direct();
  work.weights = work.tile + (is_direct ? 2 : 1) * kKeys * work.stride();
  work.scores = reinterpret_cast<float*>(work.weights + Work::kM * Work::kWeightStride);
  work.raw = reinterpret_cast<unsigned char*>(work.scores + latent_scores(kRows));
  const int own = thread() / Work::kSharers;
  work.last_seen = own < n_here ? p.positions[(first + own) / p.heads_per_group] : -1;
  GPU_UNROLL
  for (int r = 0; r < Work::kOwnRows; ++r) {
    GPU_UNROLL
    for (int i = 0; i < Work::kSlice / 8; ++i) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) work.out[r][i][e] = 0;
    }
  }

  const int step = p.n_pieces * kKeys;
  int buffer = 0;
  work.copy_rows(position, end, buffer);
  close_copies();
  work.load_queries();
  for (; position < end; position += step) {
    const int next = position + step;
    await_copies<0>();
    sync();
    if (!is_direct) {
      work.convert();
      sync();
    }
    if (next < end) work.copy_rows(next, end, buffer ^ 1);
    close_copies();
    const std::uint16_t* rows = work.tile + (is_direct ? buffer : 0) * kKeys * work.stride();
    work.score(rows);
    sync();
    work.weigh(position);
    sync();
    work.add_values(rows);
    buffer ^= 1;
  }
  work.finish(sums);
}

}  // namespace

GPU_KERNEL(attend_latent_64_512, AttentionParams, kLatentThreads) {
  attend_latents<4, true>(p);
}
GPU_KERNEL(attend_latent_64, AttentionParams, kLatentThreads) {
  attend_latents<4, false>(p);
}
GPU_KERNEL(attend_latent_16_512, AttentionParams, kLatentThreads) {
  attend_latents<1, true>(p);
}
GPU_KERNEL(attend_latent_16, AttentionParams, kLatentThreads) {
  attend_latents<1, false>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
