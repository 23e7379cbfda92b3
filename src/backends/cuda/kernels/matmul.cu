// Products of many rows of activations with weights that were opened before, and what opens them.
#include "backends/cuda/kernels/tile_product.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

namespace {

template <Kind kKind, int kBits>
GPU_INLINE void open_chunk(const DeviceWeight& w, int row, float unit, int column, bool is_rest,
                           Quad* out) {
  const StoredRow stored = stored_row(w, row, unit);
  StoredChunk<kKind, kBits> chunk;
  load_chunk(w, stored, places_of(w), column, chunk);
  GPU_UNROLL
  for (int i = 0; i < 4; ++i)
    out[i] = is_rest ? rest_of_eight(w, stored, chunk, i) : open_eight(w, stored, chunk, i);
}

GPU_INLINE void open_affine_chunk(const DeviceWeight& w, int row, float unit, int column,
                                  bool is_rest, Quad* out) {
  switch (w.bits) {
    case 2:
      return open_chunk<Kind::Affine, 2>(w, row, unit, column, is_rest, out);
    case 3:
      return open_chunk<Kind::Affine, 3>(w, row, unit, column, is_rest, out);
    case 4:
      return open_chunk<Kind::Affine, 4>(w, row, unit, column, is_rest, out);
    case 5:
      return open_chunk<Kind::Affine, 5>(w, row, unit, column, is_rest, out);
    case 6:
      return open_chunk<Kind::Affine, 6>(w, row, unit, column, is_rest, out);
    default:
      return open_chunk<Kind::Affine, 8>(w, row, unit, column, is_rest, out);
  }
}

}  // namespace

// A thread for each chunk, those of a column one after the other.
GPU_KERNEL(open_columns, OpenParams, 256) {
  const int chunks = static_cast<int>(p.out_stride) / kOpenedChunk;
  const std::int64_t index = std::int64_t{block_x()} * n_threads() + thread();
  if (index >= std::int64_t{p.n} * chunks) return;
  const int in_panel = static_cast<int>(index / chunks);
  const int at = static_cast<int>(index % chunks) * kOpenedChunk;
  const int part_columns = static_cast<int>(p.out_stride) / p.n_parts;
  const int first = at % part_columns;
  const bool is_rest = at >= 2 * part_columns;
  const int column = p.first + in_panel;
  const DeviceWeight& w = p.weights[p.is_gated ? column % 2 : 0];
  const int row = p.is_gated ? column / 2 : column;
  auto* out = reinterpret_cast<Quad*>(p.out + in_panel * p.out_stride + at);
  if (first >= w.cols) {
    for (int i = 0; i < 4; ++i) out[i] = {0, 0, 0, 0};
    return;
  }
  if (!opens_in_chunks(w))
    return open_slowly(w, row, p.unit, first, kOpenedChunk, is_rest,
                       reinterpret_cast<std::uint16_t*>(out));
  switch (w.kind) {
    case Kind::F32:
      return open_chunk<Kind::F32, 32>(w, row, p.unit, first, is_rest, out);
    case Kind::F16:
      return open_chunk<Kind::F16, 16>(w, row, p.unit, first, is_rest, out);
    case Kind::BF16:
      return open_chunk<Kind::BF16, 16>(w, row, p.unit, first, is_rest, out);
    case Kind::Fp8Block:
      return open_chunk<Kind::Fp8Block, 8>(w, row, p.unit, first, is_rest, out);
    case Kind::Fp4:
      return open_chunk<Kind::Fp4, 4>(w, row, p.unit, first, is_rest, out);
    case Kind::Affine:
      return open_affine_chunk(w, row, p.unit, first, is_rest, out);
  }
}

namespace {

// Blocks: tiles of rows, columns.
template <int kDepth, int kStages>
GPU_INLINE void product_of_opened(const OpenedProductParams& p) {
  constexpr int kUnits = kDepth / 8, kRowsAtOnce = kOpenedThreads / kUnits;
  constexpr int kCopiesOfX = kOpenedRows / kRowsAtOnce, kCopies = kOpenedColumns / kRowsAtOnce;
  constexpr int kRowBytes = kDepth * 2;
  constexpr int kBytesOfX = kOpenedRows * kRowBytes, kBytes = kOpenedColumns * kRowBytes;
  const RowTile tile{
      0, block_x() * kOpenedRows,
      p.n - block_x() * kOpenedRows < kOpenedRows ? p.n - block_x() * kOpenedRows : kOpenedRows};
  const int first_column = block_y() * kOpenedColumns;
  unsigned char* activations = dynamic_shared();
  unsigned char* weights = activations + kStages * kBytesOfX;

  const int own_row = thread() / kUnits, own_unit = thread() % kUnits;
  const auto stride = static_cast<std::uint32_t>(p.stride / 8);  // in units
  std::uint32_t from[kCopiesOfX];
  GPU_UNROLL
  for (int i = 0; i < kCopiesOfX; ++i) {
    const int in_tile = own_row + i * kRowsAtOnce;
    const int row = tile.first + (in_tile < tile.n_rows ? in_tile : tile.n_rows - 1);
    from[i] = static_cast<std::uint32_t>(row) * stride + static_cast<std::uint32_t>(own_unit);
  }
  const auto* x = reinterpret_cast<const Quad*>(p.x);
  const auto* w = reinterpret_cast<const Quad*>(p.weights) +
                  static_cast<std::uint64_t>(first_column + own_row) * stride + own_unit;
  const int to = unit_at<kDepth>(own_row, own_unit);
  const int n_steps = static_cast<int>(p.stride) / kDepth;
  const auto copy = [&](int step, int stage) GPU_LAMBDA {
    if (step < n_steps) {
      const auto units = static_cast<std::uint32_t>(step * kUnits);
      GPU_UNROLL
      for (int i = 0; i < kCopiesOfX; ++i)
        copy_16(activations + stage * kBytesOfX + i * kRowsAtOnce * kRowBytes + to,
                x + (from[i] + units));
      GPU_UNROLL
      for (int i = 0; i < kCopies; ++i)
        copy_16(weights + stage * kBytes + i * kRowsAtOnce * kRowBytes + to,
                w + (static_cast<std::uint32_t>(i * kRowsAtOnce) * stride + units));
    }
    close_copies();
  };
  GPU_UNROLL
  for (int i = 0; i < kStages; ++i) copy(i, i);

  // As in product_of_stored().
  constexpr int kParts = kDepth / 16;
  const WarpTile at{warp() % 2 * 16, warp() / 2 * 64};
  float sums[4][8][4] = {};
  Fragments fragments[2];
  int stage = 0;
  await_copies<kStages - 1>();
  sync();
  load_fragments<kDepth>(fragments[0], activations, weights, at, 0);
  GPU_ROLLED
  for (int step = 0; step < n_steps; ++step) {
    const int next_stage = stage == kStages - 1 ? 0 : stage + 1;
    GPU_UNROLL
    for (int part = 0; part < kParts; ++part) {
      if (part == kParts - 1) {
        await_copies<kStages - 2>();
        sync();
        copy(step + kStages, stage);
        load_fragments<kDepth>(fragments[0], activations + next_stage * kBytesOfX,
                               weights + next_stage * kBytes, at, 0);
      } else {
        load_fragments<kDepth>(fragments[(part + 1) % 2], activations + stage * kBytesOfX,
                               weights + stage * kBytes, at, part + 1);
      }
      multiply_fragments(sums, fragments[part % 2], 4);
    }
    stage = next_stage;
  }
  store_sums<kOpenedThreads, kOpenedColumns>(p.result, sums, at, tile, nullptr, 1, p.x_scales,
                                             p.first_column + first_column,
                                             reinterpret_cast<float*>(activations));
}

}  // namespace

GPU_KERNEL(product_of_opened_little, OpenedProductParams, 256) {
  product_of_opened<32, 3>(p);
}
GPU_KERNEL(product_of_opened_large, OpenedProductParams, 256) {
  product_of_opened<64, 4>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
