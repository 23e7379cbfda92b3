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

// What a warp multiplies at a time: 16 columns of depth.
struct Fragments {
  std::uint32_t activations[4][4], weights[4][4];
};
template <int kDepth>
GPU_INLINE void load_fragments(Fragments& f, const unsigned char* activations,
                               const unsigned char* weights, const WarpTile& at, int part) {
  const int matrix = lane() / 8, r = lane() % 8;
  GPU_UNROLL
  for (int j = 0; j < 4; ++j) {
    const int row = at.column + 16 * j + (matrix / 2) * 8 + r;
    load_matrices(f.weights[j], weights + unit_at<kDepth>(row, 2 * part + matrix % 2));
  }
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int row = row_of_sums(at, i) + (matrix % 2) * 8 + r;
    load_matrices(f.activations[i], activations + unit_at<kDepth>(row, 2 * part + matrix / 2));
  }
}

GPU_INLINE void multiply_fragments(float (&sums)[4][8][4], const Fragments& f, int n_pieces) {
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (i >= n_pieces) continue;
    GPU_UNROLL
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t first[2] = {f.weights[j][0], f.weights[j][1]},
                          second[2] = {f.weights[j][2], f.weights[j][3]};
      multiply_halves(sums[i][2 * j], f.activations[i], first);
      multiply_halves(sums[i][2 * j + 1], f.activations[i], second);
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
      const float scale = x_scales[x_rows == nullptr ? row : x_rows[row] / divisor] * result.scale;
      float* y = result.y + (result.rows == nullptr ? row : result.rows[row]) * result.y_stride;
      const Pair two = *reinterpret_cast<const Pair*>(shared + in_piece * kStride + column);
      store_result<false>(result, y, tile.expert, first_column + column, float_of(two.x) * scale,
                          float_of(two.y) * scale);
    }
  }
}

// A row of weights that a thread opens, of the kernel's format. Both matrices are of that of the
// first.
template <Kind kKind, int kBits>
class ChunkOpener {
 public:
  GPU_INLINE ChunkOpener(const ProductParams& p, int expert, int matrix, int row)
      : row_(stored_row(weight_of(p, matrix, expert), row, p.unit)),
        places_(places_of(weight_of(p, 0, expert))) {
    for (int line = 0; line < kAhead; line += kLine) ask(p, line);
    if (p.result.gate == Gate::None) return;
    const Places of_second = places_of(weight_of(p, 1, expert));
    if (of_second > places_) places_ = of_second;
  }
  GPU_INLINE void load(const ProductParams& p, int column) {
    const int at = column / 8 * kBits;
    if (at % kLine < kTileDepth / 8 * kBits) ask(p, at + kAhead);
    GPU_UNROLL
    for (int i = 0; i < 2; ++i)
      load_chunk(p.weights[0], row_, places_, column + i * kOpenedChunk, chunks_[i]);
  }
  // Half of what was loaded, into the thread's row of a tile.
  GPU_INLINE void open(const ProductParams& p, int chunk, bool is_rest, unsigned char* tile) const {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<Quad*>(tile + unit_at<kTileDepth>(thread(), 4 * chunk + i)) =
          is_rest ? rest_of_eight(p.weights[0], row_, chunks_[chunk], i)
                  : open_eight(p.weights[0], row_, chunks_[chunk], i);
  }

 private:
  // Whole lines ahead: a tile has a few bytes of each of many rows.
  static constexpr int kLine = 128, kAhead = 4 * kLine;
  GPU_INLINE void ask(const ProductParams& p, int at) const {
    if (at < p.weights[0].row_bytes) prefetch(row_.data + at);
  }

  StoredRow row_;
  Places places_;
  StoredChunk<kKind, kBits> chunks_[2];
};
// Of any format.
class SlowOpener {
 public:
  GPU_INLINE SlowOpener(const ProductParams& p, int expert, int matrix, int row)
      : w_(weight_of(p, matrix, expert)), row_(row) {}
  GPU_INLINE void load(const ProductParams&, int column) { column_ = column; }
  GPU_INLINE void open(const ProductParams& p, int chunk, bool is_rest, unsigned char* tile) const {
    GPU_ROLLED
    for (int i = 0; i < 4; ++i)
      open_slowly(
          w_, row_, p.unit, column_ + 32 * chunk + 8 * i, 8, is_rest,
          reinterpret_cast<std::uint16_t*>(tile + unit_at<kTileDepth>(thread(), 4 * chunk + i)));
  }

 private:
  DeviceWeight w_;
  int row_, column_ = 0;
};

// Blocks: columns, tiles of rows. Weights are opened on the way into shared memory: a thread has a
// row of them.
template <class Opener>
GPU_INLINE void product_of_stored(const ProductParams& p) {
  static_assert(kProductThreads == kProductColumns && kTileDepth == 64);
  constexpr int kTileBytes = kProductRows * kTileDepth * 2, kUnits = kTileDepth / 8;
  constexpr int kRowsAtOnce = kProductThreads / kUnits, kCopies = kProductRows / kRowsAtOnce;
  const RowTile tile = row_tile(p, block_y(), p.rows_per_tile);
  if (tile.n_rows == 0) return;
  const int first_column = block_x() * kProductColumns;
  unsigned char* activations = dynamic_shared();
  unsigned char* weights = activations + kActivationStages * kTileBytes;

  // Copies of activations: units of every sixteenth row.
  GPU_SHARED std::uint32_t first_units[kProductRows];
  if (thread() < kProductRows) {
    const int row = tile.first + (thread() < tile.n_rows ? thread() : tile.n_rows - 1);
    const int x_row = p.rows == nullptr ? row : p.rows[row] / p.divisor;
    first_units[thread()] =
        static_cast<std::uint32_t>(x_row) * static_cast<std::uint32_t>(p.x_stride / 8);
  }
  sync();
  const auto* x = static_cast<const Quad*>(p.x) + thread() % kUnits;
  const int to = unit_at<kTileDepth>(thread() / kUnits, thread() % kUnits);
  const int steps_of_part = (p.weights[0].cols + kTileDepth - 1) / kTileDepth;
  const int n_steps = steps_of_part * p.n_parts;
  const auto copy = [&](int step, int stage) GPU_LAMBDA {
    if (step < n_steps) {
      GPU_UNROLL
      for (int i = 0; i < kCopies; ++i) {
        const int row = i * kRowsAtOnce;
        if (row < tile.n_rows)
          copy_16(activations + stage * kTileBytes + row * kTileDepth * 2 + to,
                  x + (first_units[row + thread() / kUnits] +
                       static_cast<std::uint32_t>(step * kUnits)));
      }
    }
    close_copies();
  };

  // Beyond the last column are those of the last again.
  const bool is_gated = p.result.gate != Gate::None;
  const int own = first_column + thread();
  const int column = own < p.result.n_columns ? own : p.result.n_columns - 2 + own % 2;
  const int matrix = is_gated ? column % 2 : 0;
  Opener opener(p, tile.expert, matrix, is_gated ? column / 2 : column < 0 ? 0 : column);

  GPU_UNROLL
  for (int i = 0; i < kActivationStages; ++i) copy(i, i);
  opener.load(p, 0);
  opener.open(p, 0, false, weights);
  opener.open(p, 1, false, weights);
  int loaded = steps_of_part == 1 ? 0 : 1;  // step of its part
  bool is_rest = false;                     // what is opened next
  opener.load(p, loaded * kTileDepth);

  const WarpTile at{warp() % 2 * 16, warp() / 2 * 64};
  float sums[4][8][4] = {};
  // Fragments are loaded a part before they are multiplied. So a tile is free for what comes next
  // once the barrier is passed that stands before its last part.
  const auto multiply = [&](auto pieces) GPU_LAMBDA {
    Fragments fragments[2];
    int stage = 0;
    await_copies<kActivationStages - 1>();
    sync();
    load_fragments<kTileDepth>(fragments[0], activations, weights, at, 0);
    GPU_ROLLED
    for (int step = 0; step < n_steps; ++step) {
      const unsigned char* a = activations + stage * kTileBytes;
      const unsigned char* b = weights + step % 2 * kTileBytes;
      const int next_stage = stage == kActivationStages - 1 ? 0 : stage + 1;
      const unsigned char* next_a = activations + next_stage * kTileBytes;
      unsigned char* next_b = weights + (step + 1) % 2 * kTileBytes;
      GPU_UNROLL
      for (int part = 0; part < 4; ++part) {
        if (part == 3) {
          await_copies<kActivationStages - 2>();
          sync();
          copy(step + kActivationStages, stage);
          load_fragments<kTileDepth>(fragments[0], next_a, next_b, at, 0);
        } else {
          load_fragments<kTileDepth>(fragments[(part + 1) % 2], a, b, at, part + 1);
        }
        multiply_fragments(sums, fragments[part % 2], pieces());
        if (part == 0) is_rest = step + 1 >= 2 * steps_of_part;
        if (part < 2) opener.open(p, part, is_rest, next_b);  // also when there is no next step
        if (part == 1) {
          loaded = loaded + 1 == steps_of_part ? 0 : loaded + 1;
          opener.load(p, loaded * kTileDepth);
        }
      }
      stage = next_stage;
    }
  };
  int n_pieces = 0;
  while (n_pieces < 4 && row_of_sums(at, n_pieces) < tile.n_rows) ++n_pieces;
  if (tile.n_rows > kProductRows - 16) {
    multiply([]() GPU_LAMBDA { return 4; });
  } else {
    multiply([n_pieces]() GPU_LAMBDA { return n_pieces; });
  }
  store_sums<kProductThreads, kProductColumns>(p.result, sums, at, tile, p.rows, p.divisor,
                                               p.x_scales, first_column,
                                               reinterpret_cast<float*>(activations));
}

}  // namespace moeflux::gpu
GPU_CODE_END
