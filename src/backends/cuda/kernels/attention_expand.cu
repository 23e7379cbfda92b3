// Latents become keys and values of heads: a product of halves with the heads' matrices.
#include "backends/cuda/kernels/attention_parts.h"
#include "backends/cuda/kernels/weights.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

constexpr int kStride = kExpandDepth + 8;  // halves

GPU_INLINE std::uint16_t finite_half(float x) {
  return to_half(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
}

// 128 rows of kExpandDepth halves.
GPU_INLINE void copy_rows(const std::uint16_t* from, std::int64_t stride, int n_rows,
                          std::uint16_t* to) {
  constexpr int kChunks = kExpandDepth / 8;
  GPU_UNROLL
  for (int i = 0; i < kExpandSide * kChunks / kExpandThreads; ++i) {
    const int at = i * kExpandThreads + thread(), row = at / kChunks, chunk = at % kChunks;
    const bool is_there = row < n_rows;
    copy_up_to_16(to + row * kStride + chunk * 8, from + (is_there ? row * stride + chunk * 8 : 0),
                  is_there ? 16 : 0);
  }
}

}  // namespace

// Blocks: rows of a head, heads.
GPU_KERNEL(decode_heads, HeadHalvesParams, kHeadHalvesThreads) {
  const int row = block_x(), head = p.first_head + block_y();
  std::uint16_t* to = p.to + (std::int64_t{block_y()} * (p.d_nope + p.d_value) + row) * p.width;
  const int key = static_cast<int>(head * p.key_head_rows + p.key_row0);
  const int value = static_cast<int>(head * p.value_head_rows + p.value_row0);
  for (int c = thread(); c < p.width; c += n_threads()) {
    float weight = 0;
    if (c < p.rank) {
      weight = row >= p.d_nope     ? weight_at(p.values, value + row - p.d_nope, c)
               : p.keys_transposed ? weight_at(p.keys, key + row, c)
                                   : weight_at(p.keys, key + c, row);
    }
    to[c] = finite_half(weight);
  }
}

// Blocks: 128 positions, 128 rows of a head's matrix, heads. A warp has 32 x 64 of the products.
GPU_KERNEL(expand_latents, ExpandParams, kExpandThreads) {
  const int position = p.begin + block_x() * kExpandSide, first = block_y() * kExpandSide;
  const int head = block_z(), n_rows = p.d_nope + p.d_value;
  const int stored = p.positions[p.n - 1] + 1, end = stored < p.end ? stored : p.end;
  if (position >= end) return;
  const std::uint16_t* latents = p.latents + (position - p.begin) * p.latents_stride;
  const std::uint16_t* weights = p.weights + (std::int64_t{head} * n_rows + first) * p.width;
  auto* shared = reinterpret_cast<std::uint16_t*>(dynamic_shared());
  const auto copy = [&](int step) {
    std::uint16_t* to = shared + step % 2 * (2 * kExpandSide * kStride);
    copy_rows(latents + step * kExpandDepth, p.latents_stride, end - position, to);
    copy_rows(weights + step * kExpandDepth, p.width, n_rows - first, to + kExpandSide * kStride);
    close_copies();
  };
  float sums[2][8][4];
  GPU_UNROLL
  for (int r = 0; r < 2; ++r) {
    GPU_UNROLL
    for (int i = 0; i < 8; ++i) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) sums[r][i][e] = 0;
    }
  }
  const int own_position = warp() % 4 * 32, own_row = warp() / 4 * 64;
  const int n_steps = p.width / kExpandDepth;
  copy(0);
  for (int step = 0; step < n_steps; ++step) {
    await_copies<0>();
    sync();
    if (step + 1 < n_steps) copy(step + 1);
    const std::uint16_t* from = shared + step % 2 * (2 * kExpandSide * kStride);
    const std::uint16_t* a_row = from + (own_position + lane() % 16) * kStride + lane() / 16 * 8;
    const std::uint16_t* b_row = from + kExpandSide * kStride +
                                 (own_row + lane() / 16 * 8 + lane() % 8) * kStride +
                                 lane() / 8 % 2 * 8;
    GPU_UNROLL
    for (int k = 0; k < kExpandDepth; k += 16) {
      std::uint32_t a[2][4];
      load_matrices(a[0], a_row + k);
      load_matrices(a[1], a_row + 16 * kStride + k);
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        std::uint32_t b[4];
        load_matrices(b, b_row + i * 16 * kStride + k);
        GPU_UNROLL
        for (int r = 0; r < 2; ++r) {
          multiply_halves(sums[r][2 * i], a[r], {b[0], b[1]});
          multiply_halves(sums[r][2 * i + 1], a[r], {b[2], b[3]});
        }
      }
    }
  }

  // Positions count from the first of this segment.
  std::uint16_t* keys = p.keys + head * p.keys_head;
  std::uint16_t* values = p.values + head * p.values_head;
  const auto key_at = [&](int at, int c) -> std::uint16_t& {
    return keys[(std::int64_t{at / kKvTile} * p.key_values + c) * kKvTile + at % kKvTile];
  };
  GPU_UNROLL
  for (int r = 0; r < 2; ++r) {
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int at = position - p.begin + own_position + r * 16 + h * 8 + lane() / 4;
      if (at + p.begin >= end) continue;
      const float factor = p.latent_factors[at / kKvTile];
      GPU_UNROLL
      for (int i = 0; i < 8; ++i) {
        GPU_UNROLL
        for (int e = 0; e < 2; ++e) {
          const int row = first + own_row + i * 8 + lane() % 4 * 2 + e;
          const std::uint16_t half = finite_half(sums[r][i][2 * h + e] * factor);
          if (row < p.d_nope) {
            key_at(at, row) = half;
          } else if (row < n_rows) {
            values[std::int64_t{at} * p.value_values + row - p.d_nope] = half;
          }
        }
      }
    }
  }
  if (block_y() != 0) return;
  // The rotary part, and zeros behind it.
  const int n_others = p.key_values - p.d_nope;
  for (int i = thread(); i < kExpandSide * n_others; i += kExpandThreads) {
    const int at =
        position - p.begin + i / kKvTile % (kExpandSide / kKvTile) * kKvTile + i % kKvTile;
    const int c = i / kExpandSide;
    if (at + p.begin >= end) continue;
    const float factor = p.latent_factors[at / kKvTile];
    key_at(at, p.d_nope + c) =
        c < p.d_rope
            ? finite_half(from_half(p.latents[at * p.latents_stride + p.rank + c]) * factor)
            : std::uint16_t{0};
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
