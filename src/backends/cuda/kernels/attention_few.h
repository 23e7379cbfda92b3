// Attention of few tokens: the keys are read once for 16 queries of a group, on tensor cores.
//
// Every warp goes through runs of keys of its own, kRun positions each, which it copies into its
// part of the shared memory as they are stored: while it works on the values of a run, the next
// keys are under way, and the other way round. Only at the end do warps meet.
//
// Numbers of the matrices may stand in any order as long as both factors agree. So where keys or
// values are not halves (which ldmatrix turns), a lane loads neighbouring numbers at once and deals
// them to several matrices:
//
//            keys: position of column n of matrix i   values: column of column n of matrix i
//   halves   8 i + n                                  8 i + n
//   F32      2 n + i                                  32 (i / 4) + 4 n + i % 4
//   Q8       4 n + i                                  32 (i / 4) + 4 n + i % 4
//
// Where keys are not halves, row k of a step of 16 is value k_value(k) of the key.
//
// bf16 keeps its range: queries and weights are then a sum of two bf16, and f32 is one as well.
#pragma once

#include "backends/cuda/kernels/attention_parts.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

constexpr int kQueries = 16;
constexpr float kShift = 6;  // weights are at most 2^6: small ones are still normal halves

GPU_INLINE std::uint32_t rest_of_bfloats(float first, float second, std::uint32_t rounded) {
  return to_bfloat2(first - float_of(rounded << 16), second - float_of(rounded & 0xFFFF0000u));
}
// Where value j of a step of 16 goes.
GPU_INLINE int k_of_value(int j) {
  return j % 4 * 2 + (j / 4 & 1) + (j / 8) * 8;
}
// Pairs of bytes of a and b as halves, byte i of both in out[i].
GPU_INLINE void to_halves(std::uint32_t a, std::uint32_t b, std::uint32_t (&out)[4]) {
  constexpr std::uint32_t k1024 = 0x64646464u, kMinus1152 = 0xE480E480u;
  a ^= 0x80808080u;
  b ^= 0x80808080u;
  const std::uint32_t low = pick_bytes(a, b, 0x5140), high = pick_bytes(a, b, 0x7362);
  out[0] = add_halves(pick_bytes(low, k1024, 0x4140), kMinus1152);
  out[1] = add_halves(pick_bytes(low, k1024, 0x4342), kMinus1152);
  out[2] = add_halves(pick_bytes(high, k1024, 0x4140), kMinus1152);
  out[3] = add_halves(pick_bytes(high, k1024, 0x4342), kMinus1152);
}

// kD: d, or where !kIsWhole at most that.
template <KvElement kType, int kD, bool kIsWhole>
struct FewTokens {
  static constexpr bool kIsQ8 = kType == KvElement::Q8, kIsF32 = kType == KvElement::F32;
  static constexpr bool kIsHalves = !kIsQ8 && !kIsF32;
  static constexpr bool kHasTwoParts = kType == KvElement::BF16 || kIsF32;
  static constexpr int kRun = few_tokens_run(kType);
  static constexpr int kKeyMatrices = kRun / 8;
  static constexpr int kValueMatrices = kD / 8;
  static constexpr int kQueryStride = kD + 8;  // halves

  GPU_INLINE FewTokens(const AttentionParams& params, int of_group, int first_query, int n)
      : p(params), group(of_group), first(first_query), n_here(n) {}

  const AttentionParams& p;
  int group, first, n_here;
  std::uint16_t* queries;
  unsigned char *keys, *values;  // of this warp
  float* factors;                // of queries

  float scores[kKeyMatrices][4];
  float out[kValueMatrices][4];
  float top[2] = {kNothing, kNothing}, sum[2] = {0, 0};
  float query_factor[2];
  int last_seen[2], first_seen[2];  // of the queries of this lane

  GPU_INLINE int d() const { return kIsWhole ? kD : p.d; }
  GPU_INLINE int key_bytes() const { return row_bytes_of(p.k); }
  GPU_INLINE int value_bytes() const { return row_bytes_of(p.v); }
  GPU_INLINE static int row_bytes_of(const DeviceKv& kv) {
    if constexpr (!kIsWhole) return static_cast<int>(kv.row_bytes);
    return kIsQ8 ? kD + kD / 16 : kIsF32 ? kD * 4 : kD * 2;
  }
  GPU_INLINE static int position_of(int i, int n) {
    return kIsHalves ? 8 * i + n : kIsF32 ? 2 * n + i : 4 * n + i;
  }
  GPU_INLINE static int column_of(int i, int n) {
    return kIsHalves ? 8 * i + n : 32 * (i / 4) + 4 * n + i % 4;
  }

  // ---- copies

  // Tiles of keys; those at `end` and behind are not there.
  GPU_INLINE void copy_keys(int position, int end) const {
    const unsigned char* from =
        p.k.data + group * p.k.head_bytes + std::int64_t{position} * p.k.row_bytes;
    const int tile_bytes = kKvTile * key_bytes();
    GPU_UNROLL
    for (int tile = 0; tile < kRun / kKvTile; ++tile) {
      const int bytes = position + tile * kKvTile < end ? 16 : 0;
      unsigned char* to = keys + tile * few_tokens_tile_stride(kType, tile_bytes);
      for (int i = lane(); i < tile_bytes / 16; i += kWarp) {
        const int chunk = kIsHalves ? i ^ (i >> 3 & 1) : kIsF32 ? i ^ (i >> 3 & 1) << 1 : i;
        if (bytes == 16) {
          copy_16(to + chunk * 16, from + tile * tile_bytes + i * 16);
        } else {
          copy_up_to_16(to + chunk * 16, p.k.data, 0);
        }
      }
    }
  }
  GPU_INLINE void copy_values(int position, int end) const {
    const int row_bytes = value_bytes();
    const unsigned char* from =
        p.v.data + group * p.v.head_bytes + std::int64_t{position} * p.v.row_bytes;
    const int n_rows = end - position;
    if constexpr (kIsQ8) {
      const int stored = n_rows * row_bytes;
      GPU_UNROLL
      for (int part = 0; part < kRun / 8; ++part) {
        unsigned char* to = values + part * few_tokens_rows_stride(8 * row_bytes);
        for (int i = lane(); i < row_bytes / 2; i += kWarp) {
          const int at = part * 8 * row_bytes + i * 16, left = stored - at;
          const int bytes = left < 0 ? 0 : left > 16 ? 16 : left;
          copy_up_to_16(to + i * 16, from + (bytes == 0 ? 0 : at), bytes);
        }
      }
    } else {
      constexpr int kChunks = kD * (kIsF32 ? 4 : 2) / 16;
      constexpr int kLanes = kChunks < kWarp ? kChunks : kWarp;
      for (int row = lane() / kLanes; row < kRun; row += kWarp / kLanes) {
        const int bytes = row < n_rows ? 16 : 0;
        GPU_UNROLL
        for (int j = 0; j < kChunks; j += kLanes) {
          const int chunk = j + lane() % kLanes;
          if (chunk * 16 >= row_bytes) continue;
          copy_up_to_16(values + row * row_bytes + (chunk ^ turn_of(row)) * 16,
                        from + (bytes == 0 ? 0 : row * row_bytes + chunk * 16), bytes);
        }
      }
    }
  }
  // Chunks of rows of values change places so that lanes meet different banks.
  GPU_INLINE int turn_of(int row) const {
    if constexpr (kIsF32) return (row >> 2 & 3) * 2;
    return d() % 64 == 0 ? row & 7 : 0;
  }

  // ---- queries

  GPU_INLINE void load_queries() const {
    constexpr int kAtOnce = 4;  // of a warp
    const int n_warps = n_threads() / kWarp;
    for (int begin = warp(); begin < kQueries; begin += kAtOnce * n_warps) {
      float q[kAtOnce][kD / kWarp];
      GPU_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const int j = begin + k * n_warps;
        load_query(p, query_of(p, group, first + j), j < n_here, q[k]);
      }
      GPU_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        const int j = begin + k * n_warps;
        const QueryScale scale = scale_of(q[k]);
        if (lane() == 0) factors[j] = scale.up * p.scale;
        GPU_UNROLL
        for (int i = 0; i < kD / kWarp; ++i) {
          const int c = i * kWarp + lane();
          const int at = kIsHalves ? c : c / 16 * 16 + k_of_value(c % 16);
          const float value = q[k][i] * scale.down;
          std::uint16_t* to = queries + j * kQueryStride + at;
          if constexpr (kHasTwoParts) {
            const std::uint32_t rounded = to_bfloat2(value, 0);
            to[0] = static_cast<std::uint16_t>(rounded);
            to[kQueries * kQueryStride] =
                static_cast<std::uint16_t>(rest_of_bfloats(value, 0, rounded));
          } else {
            to[0] = to_half(value);
          }
        }
      }
    }
  }
  GPU_INLINE const std::uint16_t* query_rows(int step) const {  // for ldmatrix
    return queries + lane() % 16 * kQueryStride + step * 16 + lane() / 16 * 8;
  }

  // ---- scores

  GPU_INLINE void score() {
    GPU_UNROLL
    for (int i = 0; i < kKeyMatrices; ++i) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) scores[i][e] = 0;
    }
    if constexpr (kIsHalves) {
      score_halves();
    } else if constexpr (kIsF32) {
      score_floats();
    } else {
      score_bytes();
    }
  }

  GPU_INLINE void score_halves() {
    const int row = lane() % 16, half = lane() / 16;
    GPU_UNROLL
    for (int step = 0; step < kD / 16; ++step) {
      if (step * 16 >= d()) break;
      std::uint32_t a[4], b[4];
      load_matrices(a, query_rows(step));
      const int chunk = 2 * (step * 16 + row) + half;
      load_matrices_transposed(b, keys + (chunk ^ (chunk >> 3 & 1)) * 16);
      const std::uint32_t columns[2][2] = {{b[0], b[1]}, {b[2], b[3]}};
      if constexpr (kHasTwoParts) {
        std::uint32_t rest[4];
        load_matrices(rest, query_rows(step) + kQueries * kQueryStride);
        GPU_UNROLL
        for (int i = 0; i < 2; ++i) {
          multiply_bfloats(scores[i], rest, columns[i]);
          multiply_bfloats(scores[i], a, columns[i]);
        }
      } else {
        GPU_UNROLL
        for (int i = 0; i < 2; ++i) multiply_halves(scores[i], a, columns[i]);
      }
    }
  }

  GPU_INLINE void score_floats() {
    const int n = lane() / 4, t = lane() % 4;
    GPU_UNROLL
    for (int step = 0; step < kD / 16; ++step) {
      if (step * 16 >= d()) break;
      std::uint32_t a[4], rest[4];
      load_matrices(a, query_rows(step));
      load_matrices(rest, query_rows(step) + kQueries * kQueryStride);
      float x[4][2];  // values t, 4 + t, ... of positions 2 n and 2 n + 1
      GPU_UNROLL
      for (int r = 0; r < 4; ++r) {
        const int c = step * 16 + r * 4 + t, chunk = (n / 2) ^ ((c >> 1 & 1) << 1);
        const auto* pair = reinterpret_cast<const Pair*>(keys + c * 64 + chunk * 16 + n % 2 * 8);
        const Pair both = *pair;
        x[r][0] = float_of(both.x);
        x[r][1] = float_of(both.y);
      }
      GPU_UNROLL
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t b[2] = {to_bfloat2(x[0][i], x[1][i]), to_bfloat2(x[2][i], x[3][i])};
        const std::uint32_t b_rest[2] = {rest_of_bfloats(x[0][i], x[1][i], b[0]),
                                         rest_of_bfloats(x[2][i], x[3][i], b[1])};
        multiply_bfloats(scores[i], rest, b);
        multiply_bfloats(scores[i], a, b_rest);
        multiply_bfloats(scores[i], a, b);
      }
    }
  }

  // Sums of codes, times scales, for each 32 values.
  GPU_INLINE void score_bytes() {
    const int n = lane() / 4, t = lane() % 4;
    const int stride = few_tokens_tile_stride(kType, kKvTile * key_bytes());
    const unsigned char* codes = keys + n / 4 * stride + n % 4 * 4;
    const unsigned char* scales = keys + t / 2 * stride + d() * kKvTile + t % 2 * 16;
    GPU_UNROLL
    for (int j = 0; j < kD / 32; ++j) {
      if (j * 32 >= d()) break;
      float part[4][4] = {};
      GPU_UNROLL
      for (int step = 2 * j; step < 2 * j + 2; ++step) {
        std::uint32_t a[4], x[4], low[4], high[4];
        load_matrices(a, query_rows(step));
        GPU_UNROLL
        for (int r = 0; r < 4; ++r)
          x[r] = *reinterpret_cast<const std::uint32_t*>(codes + (step * 16 + r * 4 + t) * kKvTile);
        to_halves(x[0], x[1], low);
        to_halves(x[2], x[3], high);
        GPU_UNROLL
        for (int i = 0; i < 4; ++i) multiply_halves(part[i], a, {low[i], high[i]});
      }
      // Of positions 8 t to 8 t + 7.
      const Quad quad = *reinterpret_cast<const Quad*>(scales + j * 32);
      const std::uint32_t pairs[4] = {quad.x, quad.y, quad.z, quad.w};
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        GPU_UNROLL
        for (int e = 0; e < 4; ++e) {
          const int at = (e & 1) * 4 + i;
          const std::uint32_t pair = pairs[at / 2];
          scores[i][e] += part[i][e] * float_of(at % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u);
        }
      }
    }
  }

  // Scores become weights; what was summed so far is scaled to the new largest score.
  GPU_INLINE void weigh(int position) {
    float most[2] = {top[0], top[1]};
    GPU_UNROLL
    for (int i = 0; i < kKeyMatrices; ++i) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int row = e / 2, at = position + position_of(i, lane() % 4 * 2 + e % 2);
        const bool is_seen = at <= last_seen[row] && at >= first_seen[row];
        scores[i][e] = is_seen ? scores[i][e] * query_factor[row] : kNothing;
        most[row] = max(most[row], scores[i][e]);
      }
    }
    float factor[2];
    GPU_UNROLL
    for (int row = 0; row < 2; ++row) {
      most[row] = max(most[row], shuffle_xor(most[row], 1));
      most[row] = max(most[row], shuffle_xor(most[row], 2));
      const float base = most[row] == kNothing ? 0.0f : most[row];
      factor[row] = exp2(top[row] - base);
      top[row] = most[row];
      most[row] = base - kShift;
      sum[row] *= factor[row];
    }
    GPU_UNROLL
    for (int i = 0; i < kKeyMatrices; ++i) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) {
        scores[i][e] = exp2(scores[i][e] - most[e / 2]);
        sum[e / 2] += scores[i][e];
      }
    }
    GPU_UNROLL
    for (int i = 0; i < kValueMatrices; ++i) {
      if (i * 8 >= d()) break;
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) out[i][e] *= factor[e / 2];
    }
  }

  // ---- values

  GPU_INLINE void add_values() {
    if constexpr (kIsHalves) {
      add_halves_of_values();
    } else if constexpr (kIsF32) {
      add_floats();
    } else {
      add_bytes();
    }
  }

  GPU_INLINE void weights_in_two(std::uint32_t (&a)[4], std::uint32_t (&rest)[4]) const {
    GPU_UNROLL
    for (int r = 0; r < 4; ++r) {
      const float x = scores[r / 2][r % 2 * 2], y = scores[r / 2][r % 2 * 2 + 1];
      a[r] = to_bfloat2(x, y);
      rest[r] = rest_of_bfloats(x, y, a[r]);
    }
  }

  GPU_INLINE void add_halves_of_values() {
    std::uint32_t a[4], rest[4];
    if constexpr (kHasTwoParts) {
      weights_in_two(a, rest);
    } else {
      GPU_UNROLL
      for (int r = 0; r < 4; ++r)
        a[r] = to_half2(scores[r / 2][r % 2 * 2], scores[r / 2][r % 2 * 2 + 1]);
    }
    const int row = lane() % 16;
    const unsigned char* begin = values + row * value_bytes();
    GPU_UNROLL
    for (int j = 0; j < kD / 16; ++j) {
      if (j * 16 >= d()) break;
      std::uint32_t b[4];
      load_matrices_transposed(b, begin + ((2 * j + lane() / 16) ^ turn_of(row)) * 16);
      const std::uint32_t columns[2][2] = {{b[0], b[1]}, {b[2], b[3]}};
      GPU_UNROLL
      for (int i = 0; i < 2; ++i) {
        if constexpr (kHasTwoParts) {
          multiply_bfloats(out[2 * j + i], rest, columns[i]);
          multiply_bfloats(out[2 * j + i], a, columns[i]);
        } else {
          multiply_halves(out[2 * j + i], a, columns[i]);
        }
      }
    }
  }

  GPU_INLINE void add_floats() {
    std::uint32_t a[4], rest[4];
    weights_in_two(a, rest);
    const int n = lane() / 4, t = lane() % 4, row_bytes = value_bytes();
    GPU_UNROLL
    for (int j = 0; j < kD / 32; ++j) {
      if (j * 32 >= d()) break;
      float x[4][4];  // rows 4 t, 4 t + 2, 4 t + 1, 4 t + 3
      GPU_UNROLL
      for (int r = 0; r < 4; ++r) {
        const int row = 4 * t + r % 2 * 2 + r / 2;
        const FloatQuad quad = *reinterpret_cast<const FloatQuad*>(
            values + row * row_bytes + ((8 * j + n) ^ turn_of(row)) * 16);
        x[r][0] = quad.x;
        x[r][1] = quad.y;
        x[r][2] = quad.z;
        x[r][3] = quad.w;
      }
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t b[2] = {to_bfloat2(x[0][i], x[1][i]), to_bfloat2(x[2][i], x[3][i])};
        const std::uint32_t b_rest[2] = {rest_of_bfloats(x[0][i], x[1][i], b[0]),
                                         rest_of_bfloats(x[2][i], x[3][i], b[1])};
        multiply_bfloats(out[4 * j + i], rest, b);
        multiply_bfloats(out[4 * j + i], a, b_rest);
        multiply_bfloats(out[4 * j + i], a, b);
      }
    }
  }

  // Weights take the scales of the values with them.
  GPU_INLINE void add_bytes() {
    const int n = lane() / 4, t = lane() % 4, row_bytes = value_bytes();
    const unsigned char* rows = values + t * few_tokens_rows_stride(8 * row_bytes);
    GPU_UNROLL
    for (int j = 0; j < kD / 32; ++j) {
      if (j * 32 >= d()) break;
      float scales[8];  // of positions 8 t to 8 t + 7
      GPU_UNROLL
      for (int r = 0; r < 8; ++r)
        scales[r] = from_bfloat(
            *reinterpret_cast<const std::uint16_t*>(rows + r * row_bytes + d() + 2 * j));
      GPU_UNROLL
      for (int step = 0; step < 2; ++step) {
        std::uint32_t a[4], x[4], low[4], high[4];
        GPU_UNROLL
        for (int r = 0; r < 4; ++r) {
          const int i = 2 * step + r / 2;
          a[r] =
              to_half2(scores[i][r % 2 * 2] * scales[i], scores[i][r % 2 * 2 + 1] * scales[4 + i]);
        }
        GPU_UNROLL
        for (int r = 0; r < 4; ++r) {
          const int row = r % 2 * 4 + 2 * step + r / 2;
          x[r] = *reinterpret_cast<const std::uint32_t*>(rows + row * row_bytes + 32 * j + 4 * n);
        }
        to_halves(x[0], x[1], low);
        to_halves(x[2], x[3], high);
        GPU_UNROLL
        for (int i = 0; i < 4; ++i) multiply_halves(out[4 * j + i], a, {low[i], high[i]});
      }
    }
  }

  // ---- all

  // Sums of the block's warps into the part of its piece.
  GPU_INLINE void merge_warps(unsigned char* of_warps, int warp_bytes, SoftmaxSum* sums) const {
    const int n_warps = n_threads() / kWarp;
    auto* own = reinterpret_cast<float*>(of_warps + warp() * warp_bytes);
    GPU_UNROLL
    for (int row = 0; row < 2; ++row) {
      float total = sum[row] + shuffle_xor(sum[row], 1);
      total += shuffle_xor(total, 2);
      if (lane() % 4 == 0) sums[warp() * kQueries + lane() / 4 + 8 * row] = {top[row], total};
    }
    sync_warp();
    GPU_UNROLL
    for (int i = 0; i < kValueMatrices; ++i) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int c = column_of(i, lane() % 4 * 2 + e % 2);
        if (kIsWhole || c < p.d) own[(lane() / 4 + e / 2 * 8) * d() + c] = out[i][e];
      }
    }
    sync();
    const int piece = block_y();
    for (int j = warp(); j < n_here; j += n_warps) {
      const std::int64_t part = part_of(p, piece, query_of(p, group, first + j));
      float most = kNothing, all = 0;
      for (int w = 0; w < n_warps; ++w) most = max(most, sums[w * kQueries + j].max);
      const float base = most == kNothing ? 0.0f : most;
      for (int w = 0; w < n_warps; ++w) {
        const SoftmaxSum& s = sums[w * kQueries + j];
        all += s.sum * exp2(s.max - base);
      }
      for (int c = lane(); c < p.d; c += kWarp) {
        float value = 0;
        for (int w = 0; w < n_warps; ++w) {
          const float factor = exp2(sums[w * kQueries + j].max - base);
          value += reinterpret_cast<const float*>(of_warps + w * warp_bytes)[j * p.d + c] * factor;
        }
        p.parts[part * p.d + c] = value;
      }
      if (lane() == 0) p.sums[part] = {most == kNothing ? kNothing : most - kShift, all};
    }
  }
};

// Blocks: tiles of 16 queries and groups, pieces.
template <KvElement kType, int kD, bool kIsWhole = true>
GPU_INLINE void attend_few(const AttentionParams& p) {
  using Work = FewTokens<kType, kD, kIsWhole>;
  GPU_SHARED SoftmaxSum sums[kFewTokensWarps * kQueries];
  GPU_SHARED float factors[kQueries];
  const int group = block_x() % p.n_groups, first = block_x() / p.n_groups * kQueries;
  const int n_queries = p.n * p.heads_per_group;
  const int n_here = n_queries - first < kQueries ? n_queries - first : kQueries;
  const Seen seen = seen_by(p, first / p.heads_per_group, (first + n_here - 1) / p.heads_per_group);
  const int block = next_block(p, seen.begin / p.key_block, block_y());
  if (block * p.key_block >= seen.end) return;

  const FewTokensMemory memory = few_tokens_memory(kType, p);
  auto* queries = reinterpret_cast<std::uint16_t*>(dynamic_shared());
  unsigned char* of_warps = dynamic_shared() + few_tokens_query_bytes(kType, kD);
  unsigned char* own = of_warps + warp() * memory.warp_bytes;
  Work work(p, group, first, n_here);
  work.queries = queries;
  work.keys = own;
  work.values = own + memory.key_bytes;
  work.factors = factors;

  const int step = p.n_pieces * p.key_block;
  int position = block * p.key_block + warp() * Work::kRun;
  if (position + Work::kRun <= seen.begin) position += step;
  if (position < seen.end) work.copy_keys(position, seen.end);
  close_copies();
  if (position < seen.end) work.copy_values(position, seen.end);
  close_copies();

  work.load_queries();
  GPU_UNROLL
  for (int i = 0; i < Work::kValueMatrices; ++i) {
    GPU_UNROLL
    for (int e = 0; e < 4; ++e) work.out[i][e] = 0;
  }
  sync();
  GPU_UNROLL
  for (int row = 0; row < 2; ++row) {
    const int j = lane() / 4 + 8 * row;
    const bool is_there = j < n_here;
    work.query_factor[row] = factors[j];
    work.last_seen[row] = is_there ? p.positions[(first + j) / p.heads_per_group] : -1;
    work.first_seen[row] = p.window > 0 ? work.last_seen[row] - p.window + 1 : 0;
  }
  while (position < seen.end) {
    const int next = position + step;
    await_copies<1>();
    sync_warp();
    work.score();
    sync_warp();
    if (next < seen.end) work.copy_keys(next, seen.end);
    close_copies();
    work.weigh(position);
    await_copies<1>();
    sync_warp();
    work.add_values();
    sync_warp();
    if (next < seen.end) work.copy_values(next, seen.end);
    close_copies();
    position = next;
  }
  work.merge_warps(of_warps, memory.warp_bytes, sums);
}

}  // namespace

}  // namespace moeflux::gpu
GPU_CODE_END
