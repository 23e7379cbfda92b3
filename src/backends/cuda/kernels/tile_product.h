// Products of tiles of halves in shared memory, by warps that have 64 rows by 64 columns of sums.
//
// A tile has rows of kDepth halves, in units of 16 bytes that are moved about so that eight rows of
// the same unit lie in different banks.
#pragma once

#include "backends/cuda/kernels/open_weights.h"
#include "backends/cuda/kernels/product_parts.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

template <int kDepth>
GPU_INLINE int unit_at(int row, int unit) {  // in bytes
  static_assert(kDepth == 32 || kDepth == 64);
  return kDepth == 64 ? row * 128 + ((unit ^ (row & 7)) << 4)
                      : row * 64 + ((unit ^ (row >> 1 & 3)) << 4);
}

// Rows of a warp come in four pieces of 16, each two pieces after the one before: where a tile has
// few rows, both warps that share its columns have some of them.
struct WarpTile {
  int row, column;  // the first of each
};
inline int row_of_sums(const WarpTile& at, int piece) {
  return at.row + 32 * piece;
}

// sums += 16 columns of depth, `step` being which; of as many pieces of rows as there are.
template <int kDepth>
GPU_INLINE void multiply_step(float (&sums)[4][8][4], const unsigned char* activations,
                              const unsigned char* weights, const WarpTile& at, int step,
                              int n_pieces) {
  const int matrix = lane() / 8, r = lane() % 8;
  std::uint32_t b[4][4];
  GPU_UNROLL
  for (int j = 0; j < 4; ++j) {
    const int row = at.column + 16 * j + (matrix / 2) * 8 + r;
    load_matrices(b[j], weights + unit_at<kDepth>(row, 2 * step + matrix % 2));
  }
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i >= n_pieces) continue;
    std::uint32_t a[4];
    const int row = row_of_sums(at, i) + (matrix % 2) * 8 + r;
    load_matrices(a, activations + unit_at<kDepth>(row, 2 * step + matrix / 2));
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t first[2] = {b[j][0], b[j][1]}, second[2] = {b[j][2], b[j][3]};
      multiply_halves(sums[i][2 * j], a, first);
      multiply_halves(sums[i][2 * j + 1], a, second);
    }
  }
}

// Stores the sums of a tile, 32 rows at a time, by way of `shared`. x_rows: of activations, null
// where they are those of the list.
template <int kThreads, int kColumns>
GPU_INLINE void store_sums(const ResultParams& result, const float (&sums)[4][8][4],
                           const WarpTile& at, const RowTile& tile, const std::int32_t* x_rows,
                           int divisor, const float* x_scales, int first_column, float* shared) {
  constexpr int kRows = 32, kStride = kColumns + 8;  // rows lie in different banks
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (kRows * i >= tile.n_rows) continue;
    sync();
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      float* row = shared + (at.row + lane() / 4 + 8 * half) * kStride + at.column + lane() % 4 * 2;
      GPU_UNROLL
      for (int j = 0; j < 8; ++j)
        *reinterpret_cast<Pair*>(row + 8 * j) = {bits_of(sums[i][j][2 * half]),
                                                 bits_of(sums[i][j][2 * half + 1])};
    }
    sync();
    GPU_ROLLED
    for (int pair = thread(); pair < kRows * kColumns / 2; pair += kThreads) {
      const int in_piece = pair / (kColumns / 2), column = pair % (kColumns / 2) * 2;
      if (kRows * i + in_piece >= tile.n_rows) break;
      const int row = tile.first + kRows * i + in_piece;
      const float scale = x_scales[x_rows == nullptr ? row : x_rows[row] / divisor];
      float* y = result.y + (result.rows == nullptr ? row : result.rows[row]) * result.y_stride;
      const Pair two = *reinterpret_cast<const Pair*>(shared + in_piece * kStride + column);
      store_result<false>(result, y, tile.expert, first_column + column, float_of(two.x) * scale,
                          float_of(two.y) * scale);
    }
  }
}

// A row of weights that a thread opens, of the kernel's format.
template <Kind kKind, int kBits>
class ChunkOpener {
 public:
  GPU_INLINE ChunkOpener(const DeviceWeight& w, int row, float unit)
      : row_(stored_row(w, row, unit)), cols_(w.cols) {}
  GPU_INLINE void load(int column) {
    GPU_UNROLL
    for (int i = 0; i < 2; ++i) load_chunk(row_, column + i * kOpenedChunk, cols_, chunks_[i]);
  }
  // Half of what was loaded, into the thread's row of a tile.
  GPU_INLINE void open(int chunk, unsigned char* tile) const {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<Quad*>(tile + unit_at<kTileDepth>(thread(), 4 * chunk + i)) =
          open_eight(row_, chunks_[chunk], i);
  }

 private:
  StoredRow row_;
  int cols_;
  StoredChunk<kKind, kBits> chunks_[2];
};
// Of any format.
class SlowOpener {
 public:
  GPU_INLINE SlowOpener(const DeviceWeight& w, int row, float unit)
      : w_(w), row_(row), unit_(unit) {}
  GPU_INLINE void load(int column) { column_ = column; }
  GPU_INLINE void open(int chunk, unsigned char* tile) const {
    GPU_ROLLED
    for (int i = 0; i < 4; ++i)
      open_slowly(
          w_, row_, unit_, column_ + 32 * chunk + 8 * i, 8,
          reinterpret_cast<std::uint16_t*>(tile + unit_at<kTileDepth>(thread(), 4 * chunk + i)));
  }

 private:
  DeviceWeight w_;
  int row_, column_ = 0;
  float unit_;
};

// Blocks: columns, tiles of rows. Weights are opened on the way into shared memory: a thread has a
// row of them.
template <class Opener>
GPU_INLINE void product_of_stored(const ProductParams& p) {
  static_assert(kProductThreads == kProductColumns && kTileDepth == 64);
  constexpr int kTileBytes = kProductRows * kTileDepth * 2, kUnits = kTileDepth / 8;
  constexpr int kRowsAtOnce = kProductThreads / kUnits, kCopies = kProductRows / kRowsAtOnce;
  const RowTile tile = row_tile(p, block_y(), kProductRows);
  if (tile.n_rows == 0) return;
  const int first_column = block_x() * kProductColumns;
  unsigned char* activations = dynamic_shared();
  unsigned char* weights = activations + kActivationStages * kTileBytes;

  // Copies of activations: units of every sixteenth row.
  const auto* x = static_cast<const unsigned char*>(p.x);
  std::uint32_t from[kCopies];  // in units
  GPU_UNROLL
  for (int i = 0; i < kCopies; ++i) {
    const int in_tile = thread() / kUnits + i * kRowsAtOnce;
    const int row = tile.first + (in_tile < tile.n_rows ? in_tile : tile.n_rows - 1);
    const int x_row = p.rows == nullptr ? row : p.rows[row] / p.divisor;
    from[i] = static_cast<std::uint32_t>(x_row) * static_cast<std::uint32_t>(p.x_stride / 8) +
              static_cast<std::uint32_t>(thread() % kUnits);
  }
  const int to = unit_at<kTileDepth>(thread() / kUnits, thread() % kUnits);
  const int n_steps = (p.weights[0].cols + kTileDepth - 1) / kTileDepth;
  const auto copy = [&](int step, int stage) GPU_LAMBDA {
    if (step < n_steps) {
      GPU_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        if (i * kRowsAtOnce < tile.n_rows)
          copy_16(activations + stage * kTileBytes + i * kRowsAtOnce * kTileDepth * 2 + to,
                  x + 16 * (std::uint64_t{from[i]} + static_cast<std::uint32_t>(step * kUnits)));
      }
    }
    close_copies();
  };

  // Beyond the last column are those of the last again.
  const bool is_gated = p.result.gate != Gate::None;
  const int own = first_column + thread();
  const int column = own < p.result.n_columns ? own : p.result.n_columns - 2 + own % 2;
  const int matrix = is_gated ? column % 2 : 0;
  Opener opener(weight_of(p, matrix, tile.expert),
                is_gated     ? column / 2
                : column < 0 ? 0
                             : column,
                p.unit);

  copy(0, 0);
  copy(1, 1);
  opener.load(0);
  opener.open(0, weights);
  opener.open(1, weights);
  opener.load(kTileDepth);

  const WarpTile at{warp() % 2 * 16, warp() / 2 * 64};
  int n_pieces = 0;
  while (n_pieces < 4 && row_of_sums(at, n_pieces) < tile.n_rows) ++n_pieces;
  float sums[4][8][4] = {};
  int stage = 0, next_stage = 2;
  for (int step = 0; step < n_steps; ++step) {
    await_copies<1>();
    sync();
    copy(step + 2, next_stage);
    const unsigned char* a = activations + stage * kTileBytes;
    const unsigned char* b = weights + step % 2 * kTileBytes;
    GPU_UNROLL
    for (int part = 0; part < 4; ++part) {
      multiply_step<kTileDepth>(sums, a, b, at, part, n_pieces);
      if (part < 2)  // of the next step, also when there is none
        opener.open(part, weights + (step + 1) % 2 * kTileBytes);
      if (part == 1) opener.load((step + 2) * kTileDepth);
    }
    stage = stage == kActivationStages - 1 ? 0 : stage + 1;
    next_stage = next_stage == kActivationStages - 1 ? 0 : next_stage + 1;
  }
  store_sums<kProductThreads, kProductColumns>(p.result, sums, at, tile, p.rows, p.divisor,
                                               p.x_scales, first_column,
                                               reinterpret_cast<float*>(activations));
}

}  // namespace moeflux::gpu
GPU_CODE_END
