// Linear attention of many rows, in chunks of 64: inside a chunk rows depend on each other by two
// matrices, which are worked out for all chunks at once; then blocks walk from chunk to chunk, each
// with some columns of a head's state in registers.
//
// With g_i the sum of logarithms of decays up to row i of a chunk, S the state before it, and
// d_ij = exp(g_i - g_j):
//
//   A_ij = beta_i (k_i k_j) d_ij (i > j)      T = (1 + A)^-1
//   P_ij = (q_i k_j) d_ij        (i >= j)
//   V' = T (beta_i (v_i - exp(g_i) S k_i))    out_i = exp(g_i) S q_i + P V'
//   S becomes exp(g_last) S + sum of k_i exp(g_last - g_i) V'_i
//
// Factors are two bfloats each; of their four products the smallest is left out.
#include "backends/cuda/kernels/delta.h"
#include "backends/cuda/kernels/gpu.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

constexpr int kUnit = 16;  // bytes

// Where a unit of a row lies: units of eight rows lie in different banks.
template <int kRowUnits>
GPU_INLINE int tile_at(int row, int unit) {
  return row * kRowUnits * kUnit + ((unit ^ (row & 7)) * kUnit);
}
constexpr int kKeyUnits = kChunkKey / 4,
              kKeyRest = kKeyUnits / 2;  // of a row; the first of the rest
constexpr int kMatrixUnits = kChunkRows / 4, kMatrixRest = kMatrixUnits / 2;
constexpr int kColumnUnits = kChunkColumns / 4, kColumnRest = kColumnUnits / 2;

struct Two {  // pairs of bfloats
  std::uint32_t high, rest;
};
GPU_INLINE Two split(float first, float second) {
  Two out;
  out.high = to_bfloat2(first, second);
  out.rest =
      to_bfloat2(first - float_of(out.high << 16), second - float_of(out.high & 0xFFFF0000u));
  return out;
}

// 16 rows from `row` on, 16 columns of depth from `unit` on.
template <int kRowUnits>
GPU_INLINE void load_rows(std::uint32_t (&out)[4], const unsigned char* tile, int row, int unit) {
  const int matrix = lane() / 8;
  load_matrices(out,
                tile + tile_at<kRowUnits>(row + matrix % 2 * 8 + lane() % 8, unit + matrix / 2));
}
// The same of a tile that lies there transposed.
template <int kRowUnits>
GPU_INLINE void load_rows_transposed(std::uint32_t (&out)[4], const unsigned char* tile, int depth,
                                     int unit) {
  const int matrix = lane() / 8;
  load_matrices_transposed(
      out, tile + tile_at<kRowUnits>(depth + matrix / 2 * 8 + lane() % 8, unit + matrix % 2));
}
// 16 columns from a unit on: two for the second factor, of 16 rows of depth.
template <int kRowUnits>
GPU_INLINE void load_columns(std::uint32_t (&out)[4], const unsigned char* tile, int depth,
                             int unit) {
  const int matrix = lane() / 8;
  load_matrices_transposed(
      out, tile + tile_at<kRowUnits>(depth + matrix % 2 * 8 + lane() % 8, unit + matrix / 2));
}

struct Factor {
  std::uint32_t high[4], rest[4];
};
// Adds 16 rows of `a` times pieces of eight columns, two of each of `b`. Sums come again only after
// those of all other pieces: a product takes as long as several that follow it.
template <int kPieces>
GPU_INLINE void multiply_split(float (&sums)[kPieces][4], const Factor& a,
                               const Factor (&b)[kPieces / 2]) {
  GPU_UNROLL
  for (int product = 0; product < 3; ++product) {
    GPU_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      const std::uint32_t(&of_b)[4] = product == 1 ? b[i / 2].rest : b[i / 2].high;
      const std::uint32_t two[2] = {of_b[i % 2 * 2], of_b[i % 2 * 2 + 1]};
      multiply_bfloats(sums[i], product == 0 ? a.rest : a.high, two);
    }
  }
}

// Rows of keys or queries of a chunk; those beyond the last are zeros.
template <int kThreads>
GPU_INLINE void copy_keys(const DeltaParams& p, unsigned char* tile, int chunk, int column) {
  const std::int64_t stride = 2 * p.n_key_heads * p.d_key + p.n_value_heads * p.d_value;
  const int first = chunk * kChunkRows;
  GPU_ROLLED
  for (int i = thread(); i < kChunkRows * kKeyUnits; i += kThreads) {
    const int row = i / kKeyUnits, unit = i % kKeyUnits;
    const bool is_there = first + row < p.n;
    const float* from = p.qkv + (is_there ? first + row : 0) * stride + column;
    copy_up_to_16(tile + tile_at<kKeyUnits>(row, unit), from + unit * 4, is_there ? kUnit : 0);
  }
}
GPU_INLINE void copy_matrix(unsigned char* tile, const std::uint16_t* from) {
  GPU_ROLLED
  for (int i = thread(); i < kChunkRows * kMatrixUnits; i += kChunkThreads)
    copy_16(tile + tile_at<kMatrixUnits>(i / kMatrixUnits, i % kMatrixUnits), from + i * 8);
}
GPU_INLINE std::uint16_t* matrices_of(const DeltaParams& p, int chunk, int head) {
  return p.matrices + (std::int64_t{chunk} * p.n_value_heads + head) * (2 * kChunkMatrix);
}
GPU_INLINE int key_head_of(const DeltaParams& p, int head) {
  return p.heads_alternate ? head % p.n_key_heads : head / (p.n_value_heads / p.n_key_heads);
}

}  // namespace

// T and P of a chunk; logarithms become their sums. Blocks: chunks, value heads.
GPU_KERNEL(delta_matrices, DeltaParams, 128) {
  static_assert(kChunkMatrixThreads == 128 && kChunkRows == 64);
  constexpr int kStride = kChunkRows + 4;  // of A, in floats
  const int chunk = block_x(), head = block_y(), first = chunk * kChunkRows;
  unsigned char *queries = dynamic_shared(), *keys = queries + kChunkKeyBytes;
  GPU_SHARED float sums[kChunkRows], betas[kChunkRows];

  const int key_head = key_head_of(p, head);
  copy_keys<kChunkMatrixThreads>(p, queries, chunk, key_head * kChunkKey);
  copy_keys<kChunkMatrixThreads>(p, keys, chunk, (p.n_key_heads + key_head) * kChunkKey);
  close_copies();
  if (warp() == 0) {
    float before = 0;
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int in_chunk = half * kWarp + lane(), row = first + in_chunk;
      const std::int64_t at = row * std::int64_t{p.n_value_heads} + head;
      float sum = row < p.n ? p.a[at] : 0.0f;
      GPU_UNROLL
      for (int step = 1; step < kWarp; step *= 2) {
        const float other = shuffle(sum, lane() >= step ? lane() - step : lane());
        if (lane() >= step) sum += other;
      }
      sum += before;
      before = shuffle(sum, kWarp - 1);
      sums[in_chunk] = sum;
      betas[in_chunk] = row < p.n ? p.b[at] : 0.0f;
      if (row < p.n) p.a[at] = sum;
    }
  }
  await_copies<0>();
  sync();

  // A warp has 16 rows, up to the diagonal.
  float kk[4][2][4] = {}, qk[4][2][4] = {};
  const int own = 16 * warp();
  GPU_UNROLL
  for (int part = 0; part < kChunkKey / 16; ++part) {
    Factor of_k, of_q;
    load_rows<kKeyUnits>(of_k.high, keys, own, 2 * part);
    load_rows<kKeyUnits>(of_k.rest, keys, own, kKeyRest + 2 * part);
    load_rows<kKeyUnits>(of_q.high, queries, own, 2 * part);
    load_rows<kKeyUnits>(of_q.rest, queries, own, kKeyRest + 2 * part);
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (j > warp()) continue;
      // Rows are the columns of the second factor.
      const int matrix = lane() / 8, row = 16 * j + matrix / 2 * 8 + lane() % 8;
      Factor other[1];
      load_matrices(other[0].high, keys + tile_at<kKeyUnits>(row, 2 * part + matrix % 2));
      load_matrices(other[0].rest,
                    keys + tile_at<kKeyUnits>(row, kKeyRest + 2 * part + matrix % 2));
      multiply_split(kk[j], of_k, other);
      multiply_split(qk[j], of_q, other);
    }
  }
  sync();
  auto* a = reinterpret_cast<float*>(queries);  // [row][kStride], negative
  std::uint16_t* out = matrices_of(p, chunk, head);
  GPU_UNROLL
  for (int j = 0; j < 8; ++j) {
    if (j / 2 > warp()) continue;
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = own + lane() / 4 + 8 * half, column = 8 * j + lane() % 4 * 2;
      float pair[2];
      GPU_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int c = column + i;
        const float decay = exp(sums[row] - sums[c <= row ? c : row]);
        a[row * kStride + c] =
            c < row ? -betas[row] * kk[j / 2][j % 2][2 * half + i] * decay : 0.0f;
        pair[i] = c <= row ? qk[j / 2][j % 2][2 * half + i] * decay : 0.0f;
      }
      const Two two = split(pair[0], pair[1]);
      auto* to = reinterpret_cast<std::uint32_t*>(out + kChunkMatrix + row * 2 * kChunkRows);
      to[column / 2] = two.high;
      to[(kChunkRows + column) / 2] = two.rest;
    }
  }
  sync();
  if (thread() >= kChunkRows) return;
  // A thread has a column of T.
  float t[kChunkRows];
  GPU_UNROLL
  for (int i = 0; i < kChunkRows; ++i) {
    float parts[4] = {i == thread() ? 1.0f : 0.0f, 0, 0, 0};
    GPU_UNROLL
    for (int m = 0; m + 4 <= i; m += 4) {
      const FloatQuad quad = *reinterpret_cast<const FloatQuad*>(a + i * kStride + m);
      parts[0] += quad.x * t[m];
      parts[1] += quad.y * t[m + 1];
      parts[2] += quad.z * t[m + 2];
      parts[3] += quad.w * t[m + 3];
    }
    GPU_UNROLL
    for (int m = i / 4 * 4; m < i; ++m) parts[m % 4] += a[i * kStride + m] * t[m];
    t[i] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    const Two two = split(t[i], 0);
    out[i * 2 * kChunkRows + thread()] = static_cast<std::uint16_t>(two.high & 0xFFFFu);
    out[i * 2 * kChunkRows + kChunkRows + thread()] =
        static_cast<std::uint16_t>(two.rest & 0xFFFFu);
  }
}

namespace {

// Stores what a lane has of a row's piece of eight columns.
GPU_INLINE void store_two(unsigned char* tile, int row, int piece, float first, float second) {
  const Two two = split(first, second);
  const int in_unit = lane() % 4 * 4;
  *reinterpret_cast<std::uint32_t*>(tile + tile_at<kColumnUnits>(row, piece) + in_unit) = two.high;
  *reinterpret_cast<std::uint32_t*>(tile + tile_at<kColumnUnits>(row, kColumnRest + piece) +
                                    in_unit) = two.rest;
}

// 16 rows of depth of 32 columns.
GPU_INLINE void load_all_columns(Factor (&b)[2], const unsigned char* tile, int depth) {
  GPU_UNROLL
  for (int j = 0; j < 2; ++j) {
    load_columns<kColumnUnits>(b[j].high, tile, depth, 2 * j);
    load_columns<kColumnUnits>(b[j].rest, tile, depth, kColumnRest + 2 * j);
  }
}

}  // namespace

// After delta_matrices. Blocks: pieces of the columns of a head's state, value heads.
GPU_KERNEL(delta_chunks, DeltaParams, 256) {
  static_assert(kChunkThreads == 256 && kChunkKey == 128 && kChunkColumns == 32);
  const int head = block_y(), key_head = key_head_of(p, head);
  const int n_chunks = (p.n + kChunkRows - 1) / kChunkRows;
  unsigned char* keys = dynamic_shared();  // of this chunk and the next
  unsigned char* queries = keys + 2 * kChunkKeyBytes;
  unsigned char* t_tile = queries + kChunkKeyBytes;
  unsigned char* p_tile = t_tile + kChunkMatrixBytes;
  unsigned char* states = p_tile + kChunkMatrixBytes;  // until the second sync() of a chunk
  unsigned char *values = states, *decayed_values = states + kChunkRows * kChunkColumnBytes;
  unsigned char* targets = states + kChunkKey * kChunkColumnBytes;

  const auto copy_keys_of = [&](int chunk) GPU_LAMBDA {
    if (chunk < n_chunks) {
      copy_keys<kChunkThreads>(p, keys + chunk % 2 * kChunkKeyBytes, chunk,
                               (p.n_key_heads + key_head) * kChunkKey);
      copy_keys<kChunkThreads>(p, queries, chunk, key_head * kChunkKey);
    }
    close_copies();
  };
  const auto copy_matrix_of = [&](int chunk, int which) GPU_LAMBDA {
    if (chunk < n_chunks)
      copy_matrix(which == 0 ? t_tile : p_tile, matrices_of(p, chunk, head) + which * kChunkMatrix);
    close_copies();
  };
  copy_keys_of(0);
  copy_matrix_of(0, 0);
  copy_matrix_of(0, 1);

  const int row_of_lane = lane() / 4, first_column = block_x() * kChunkColumns + lane() % 4 * 2;
  float state[4][4];  // rows 16 warp() + row_of_lane and 8 further
  float* stored =
      p.state + (std::int64_t{head} * kChunkKey + 16 * warp() + row_of_lane) * p.d_value;
  GPU_UNROLL
  for (int j = 0; j < 4; ++j) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i)
      state[j][i] = stored[i / 2 * 8 * std::int64_t{p.d_value} + first_column + 8 * j + i % 2];
  }

  // Of a chunk, warps 0 to 3 have 16 keys each, the others 16 queries.
  const bool has_keys = warp() < 4;
  const int own = warp() % 4 * 16;
  const std::int64_t stride = 2 * p.n_key_heads * p.d_key + p.n_value_heads * p.d_value;
  const float* v = p.qkv + 2 * p.n_key_heads * p.d_key + head * p.d_value + first_column;
  const std::int64_t out_stride = std::int64_t{p.n_value_heads} * p.d_value;
  float* out = p.out + head * p.d_value + first_column;
  GPU_ROLLED
  for (int chunk = 0; chunk < n_chunks; ++chunk) {
    const unsigned char* own_keys = keys + chunk % 2 * kChunkKeyBytes;
    const int first = chunk * kChunkRows;
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) {
      GPU_UNROLL
      for (int half = 0; half < 2; ++half)
        store_two(states, 16 * warp() + row_of_lane + 8 * half, j, state[j][2 * half],
                  state[j][2 * half + 1]);
    }
    // Of the two rows that a lane has part of.
    float sum[2], beta[2], given[4][4] = {};
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = first + own + row_of_lane + 8 * half;
      const bool is_there = row < p.n;
      const std::int64_t at = (is_there ? row : p.n - 1) * std::int64_t{p.n_value_heads} + head;
      sum[half] = p.a[at];
      beta[half] = is_there ? p.b[at] : 0.0f;
      if (has_keys && is_there) {
        GPU_UNROLL
        for (int j = 0; j < 4; ++j) {
          given[j][2 * half] = v[row * stride + 8 * j];
          given[j][2 * half + 1] = v[row * stride + 8 * j + 1];
        }
      }
    }
    const int last = first + kChunkRows < p.n ? first + kChunkRows - 1 : p.n - 1;
    const float last_sum = p.a[last * std::int64_t{p.n_value_heads} + head];

    await_copies<2>();
    sync();
    float results[4][4] = {};
    GPU_UNROLL
    for (int part = 0; part < kChunkKey / 16; ++part) {
      Factor rows, columns[2];
      load_rows<kKeyUnits>(rows.high, has_keys ? own_keys : queries, own, 2 * part);
      load_rows<kKeyUnits>(rows.rest, has_keys ? own_keys : queries, own, kKeyRest + 2 * part);
      load_all_columns(columns, states, 16 * part);
      multiply_split(results, rows, columns);
    }
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float decay = exp(sum[half]);
      GPU_UNROLL
      for (int j = 0; j < 4; ++j) {
        float &one = results[j][2 * half], &two = results[j][2 * half + 1];
        one *= decay;
        two *= decay;
        if (has_keys)
          store_two(targets, own + row_of_lane + 8 * half, j,
                    beta[half] * (given[j][2 * half] - one),
                    beta[half] * (given[j][2 * half + 1] - two));
      }
    }
    await_copies<1>();
    sync();
    copy_keys_of(chunk + 1);

    // Two warps share 16 rows of T, with 16 columns each.
    const int pair = warp() / 4 * 2;
    float new_values[2][2][4] = {};  // of parts that are even, and odd
    GPU_UNROLL
    for (int part = 0; part < kChunkRows / 16; ++part) {
      if (16 * part > own) continue;
      Factor rows, b[1];
      load_rows<kMatrixUnits>(rows.high, t_tile, own, 2 * part);
      load_rows<kMatrixUnits>(rows.rest, t_tile, own, kMatrixRest + 2 * part);
      load_columns<kColumnUnits>(b[0].high, targets, 16 * part, pair);
      load_columns<kColumnUnits>(b[0].rest, targets, 16 * part, kColumnRest + pair);
      multiply_split(new_values[part % 2], rows, b);
    }
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = own + row_of_lane + 8 * half;
      const float decay = exp(last_sum - sum[half]);
      GPU_UNROLL
      for (int j = 0; j < 2; ++j) {
        const float one = new_values[0][j][2 * half] + new_values[1][j][2 * half];
        const float two = new_values[0][j][2 * half + 1] + new_values[1][j][2 * half + 1];
        store_two(values, row, pair + j, one, two);
        store_two(decayed_values, row, pair + j, decay * one, decay * two);
      }
    }
    await_copies<1>();
    sync();
    copy_matrix_of(chunk + 1, 0);

    const float decay = exp(last_sum);
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) state[j][i] *= decay;
    }
    GPU_UNROLL
    for (int part = 0; part < kChunkRows / 16; ++part) {
      Factor rows, columns[2];
      load_rows_transposed<kKeyUnits>(rows.high, own_keys, 16 * part, 2 * warp());
      load_rows_transposed<kKeyUnits>(rows.rest, own_keys, 16 * part, kKeyRest + 2 * warp());
      load_all_columns(columns, decayed_values, 16 * part);
      multiply_split(state, rows, columns);
      if (has_keys || 16 * part > own) continue;
      load_rows<kMatrixUnits>(rows.high, p_tile, own, 2 * part);
      load_rows<kMatrixUnits>(rows.rest, p_tile, own, kMatrixRest + 2 * part);
      load_all_columns(columns, values, 16 * part);
      multiply_split(results, rows, columns);
    }
    if (!has_keys) {
      GPU_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int row = first + own + row_of_lane + 8 * half;
        if (row >= p.n) continue;
        GPU_UNROLL
        for (int j = 0; j < 4; ++j)
          *reinterpret_cast<Pair*>(out + row * out_stride + 8 * j) = {
              bits_of(results[j][2 * half]), bits_of(results[j][2 * half + 1])};
      }
    }
    sync();
    copy_matrix_of(chunk + 1, 1);
  }
  GPU_UNROLL
  for (int j = 0; j < 4; ++j) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i)
      stored[i / 2 * 8 * std::int64_t{p.d_value} + first_column + 8 * j + i % 2] = state[j][i];
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
