// Products of the rows of experts with weights of four bits that are opened in registers: what a
// lane loads is what it multiplies, so that weights take no shared memory and are opened once for
// all rows of a tile.
//
// A warp has 32 columns of a tile, and all of its rows. Of 128 columns of depth, lane 4 n + t loads
// those from 32 t on of weights of its own columns. So products take columns of depth in another
// order (depth_at()), which rows of activations were rounded in.
#include "backends/cuda/kernels/open_weights.h"
#include "backends/cuda/kernels/tile_product.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

constexpr int kThreads = kProductThreads, kColumns = kProductColumns;
constexpr int kPartBytes = kProductRows * kTileDepth * 2;  // of a stage
constexpr int kMeansUnits = kDirectGroups / 8;             // of a row
GPU_INLINE int means_at(int row, int unit) {               // in bytes, as unit_at()
  static_assert(kMeansUnits == 2);
  return row * 32 + ((unit ^ (row >> 2 & 1)) << 4);
}
constexpr int kTiles = 4;  // of 8 columns, those of a warp

// The column of a tile that column n of a warp's part `j` is: a lane's sums are those of eight
// neighbours.
GPU_INLINE int column_of(int n, int j) {
  return warp() * 32 + n / 2 * 8 + 2 * j + n % 2;
}

// A scale and an offset for each column of a tile and group of depth, as halves. Groups fill whole
// pieces of 16.
class Groups {
 public:
  GPU_INLINE Groups(const ProductParams& p, const DeviceWeight& w, int first_column,
                    std::uint32_t* table)
      : table_(table), first_column_(first_column) {
    const bool has_biases = w.zero == Zero::Bias;
    comes_in_quads_ = scale_size(w.scale_type) == 2 && w.scales_per_row % 8 == 0 &&
                      is_multiple(w.scales, 16) && w.zero != Zero::ZeroPoint &&
                      (!has_biases || is_multiple(w.biases, 16));
    fits_ = is_multiple(w.scales, scale_size(w.scale_type)) && is_multiple(w.biases, bias_size(w));
    is_gated_ = p.result.gate != Gate::None;
  }
  // From a group on. Threads that share a column have eight groups each.
  GPU_INLINE void fill(const ProductParams& p, const DeviceWeight& w, int first_group) const {
    constexpr int kSharers = kDirectGroups / 8;
    static_assert(kSharers == 2);
    const int n = w.scales_per_row - first_group, part = thread() % kSharers * 8;
    if (part >= (n + 15) / 16 * 16) return;
    GPU_ROLLED
    for (int i = 0; i < 2; ++i) {
      // Of the thread's matrix: own_weight().
      const int in_tile = thread() / 4 + thread() % 4 / 2 * (kColumns / 2) + i * (kColumns / 4);
      int column = first_column_ + in_tile;
      if (column >= p.result.n_columns) column = first_column_ + in_tile % 8;
      const std::int64_t at =
          std::int64_t{is_gated_ ? column / 2 : column} * w.scales_per_row + first_group + part;
      std::uint32_t* to = table_ + part * kGroupStride + in_tile;
      if (part >= n) {
        GPU_UNROLL
        for (int k = 0; k < 8; ++k) to[k * kGroupStride] = 0;
      } else if (comes_in_quads_) {
        const Quad scales = *reinterpret_cast<const Quad*>(w.scales + 2 * at);
        Quad biases{0, 0, 0, 0};
        if (w.zero == Zero::Bias) biases = *reinterpret_cast<const Quad*>(w.biases + 2 * at);
        const std::uint32_t of_scales[4] = {scales.x, scales.y, scales.z, scales.w};
        const std::uint32_t of_biases[4] = {biases.x, biases.y, biases.z, biases.w};
        GPU_UNROLL
        for (int k = 0; k < 8; ++k) {
          const int shift = 16 * (k % 2);
          to[k * kGroupStride] = entry(w, of_scales[k / 2] >> shift & 0xFFFFu,
                                       of_biases[k / 2] >> shift & 0xFFFFu, p.unit);
        }
      } else {
        GPU_ROLLED
        for (int k = 0; k < 8; ++k) {
          if (part + k >= n) {
            to[k * kGroupStride] = 0;
            continue;
          }
          const int index = static_cast<int>(at) + k;
          const std::uint32_t scale =
              load_scale_bits(w.scales, scale_size(w.scale_type), index, fits_);
          const std::uint32_t bias =
              w.zero == Zero::MidCode ? 0 : load_scale_bits(w.biases, bias_size(w), index, fits_);
          to[k * kGroupStride] = entry(w, scale, bias, p.unit);
        }
      }
    }
  }

 private:
  // Weights are scale * (code - 8) + offset.
  static GPU_INLINE std::uint32_t entry(const DeviceWeight& w, std::uint32_t scale_bits,
                                        std::uint32_t bias_bits, float unit) {
    const float scale = scale_of_bits(w.scale_type, scale_bits);
    float offset = 0;
    if (w.zero == Zero::Bias) offset = scale_of_bits(w.scale_type, bias_bits) + 8 * scale;
    if (w.zero == Zero::ZeroPoint) offset = scale * (8 - static_cast<float>(bias_bits));
    return to_half2(scale * unit, offset * static_cast<float>(w.group));
  }

  static constexpr int kGroupStride = kDirectGroupStride;
  std::uint32_t* table_;
  int first_column_;
  bool comes_in_quads_, fits_, is_gated_;
};

// Copies the codes of a lane into shared memory, 32 for each part of its warp's columns: no other
// lane reads them. Before that it asks for whole lines of memory, since a tile has a few bytes of
// each of many rows.
class CodeReader {
 public:
  GPU_INLINE CodeReader(const ProductParams& p, const DeviceWeight& w, int first_column,
                        unsigned char* shared) {
    const bool is_gated = p.result.gate != Gate::None;
    const auto row_of = [&](int in_tile) GPU_LAMBDA {
      int column = first_column + in_tile;
      if (column >= p.result.n_columns) column = first_column + in_tile % 8;
      return is_gated ? column / 2 : column;
    };
    from_ = w.data + row_of(column_of(lane() / 4, 0)) * w.row_bytes + lane() % 4 * 16;
    step_ = is_gated ? w.row_bytes : 2 * w.row_bytes;
    is_aligned_ = is_multiple(w.data, 16) && w.row_bytes % 16 == 0;
    // Rows of the lane's matrix, eight of its warp's for four lanes.
    ahead_ = w.data + row_of(column_of(lane() / 4, lane() % 4)) * w.row_bytes;
    to_ = shared + warp() * (kTiles * kWarp * 16) + lane() * 16;
    n_blocks_ = w.cols / kDirectDepth;
    for (int block = 0; block < kAhead; block += 2) ask(block);
  }
  GPU_INLINE void copy(int block) const {
    if (block >= n_blocks_) return;
    if (block % 2 == 0) ask(block + kAhead);
    const unsigned char* from = from_ + block * (kDirectDepth / 2);
    unsigned char* to = to_ + block % kDirectCodeStages * kStageOfCodes;
    if (is_aligned_) {
      GPU_UNROLL
      for (int j = 0; j < kTiles; ++j) copy_16(to + j * (kWarp * 16), from + j * step_);
    } else {
      GPU_ROLLED
      for (int j = 0; j < kTiles; ++j) {
        const unsigned char* at = from + j * step_;
        *reinterpret_cast<Quad*>(to + j * (kWarp * 16)) = {
            load_32_bits(at), load_32_bits(at + 4), load_32_bits(at + 8), load_32_bits(at + 12)};
      }
    }
  }
  GPU_INLINE Pair codes(int step, int j) const {  // half of those of a block
    return *reinterpret_cast<const Pair*>(to_ + step / 2 % kDirectCodeStages * kStageOfCodes +
                                          j * (kWarp * 16) + step % 2 * 8);
  }

 private:
  static constexpr int kStageOfCodes = kColumns * kDirectDepth / 2;
  static constexpr int kAhead = 8;  // blocks of 64 bytes, two of a line
  GPU_INLINE void ask(int block) const {
    if (block < n_blocks_) prefetch(ahead_ + block * (kDirectDepth / 2));
  }

  const unsigned char *from_, *ahead_;
  unsigned char* to_;
  std::int64_t step_;
  int n_blocks_;
  bool is_aligned_;
};

// Two halves of weights for each of the two registers of a part of depth, from four codes of a
// dword: 0 and 4, 1 and 5, or two further.
GPU_INLINE void open_codes(std::uint32_t dword, int pair, std::uint32_t scales,
                           std::uint32_t (&out)[2]) {
  constexpr std::uint32_t k1024 = 0x64006400u;
  const std::uint32_t bits = pair == 0 ? dword : dword >> 8;
  const std::uint32_t low = (bits & 0x000F000Fu) | k1024;   // 1024 + code
  const std::uint32_t high = (bits & 0x00F000F0u) | k1024;  // 1024 + 16 code
  constexpr std::uint32_t kMinus1032 = 0xE408E408u, kMinus72 = 0xD480D480u,
                          kSixteenth = 0x2C002C00u;
  out[0] = scale_halves(add_halves(low, kMinus1032), scales);
  out[1] = scale_halves(multiply_add_halves(high, kSixteenth, kMinus72), scales);
}

// Eight neighbouring columns of a row of sums.
GPU_INLINE void store_eight(const ResultParams& r, float* row, int expert, int column,
                            float (&sums)[8], bool are_quads) {
  if (r.biases[0] != nullptr) {
    const float* bias = r.biases[0] + std::int64_t{expert} * r.n_columns + column;
    GPU_UNROLL
    for (int i = 0; i < 8; ++i) sums[i] += bias[i];
  }
  if (are_quads) {
    auto* to = reinterpret_cast<FloatQuad*>(row + column);
    to[0] = {sums[0], sums[1], sums[2], sums[3]};
    to[1] = {sums[4], sums[5], sums[6], sums[7]};
  } else {
    GPU_UNROLL
    for (int i = 0; i < 8; ++i) row[column + i] = sums[i];
  }
}
// The same where they are pairs of gate and up.
template <Gate kGate>
GPU_INLINE void store_four(const ResultParams& r, float* row, int expert, int column,
                           float (&sums)[8], bool are_quads) {
  ResultParams own = r;
  own.gate = kGate;
  const std::int64_t bias = std::int64_t{expert} * (r.n_columns / 2) + column / 2;
  float out[4];
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    float gate = sums[2 * i], up = sums[2 * i + 1];
    if (r.biases[0] != nullptr) gate += r.biases[0][bias + i];
    if (r.biases[1] != nullptr) up += r.biases[1][bias + i];
    out[i] = gate_value<false>(own, gate, up);
  }
  if (are_quads) {
    *reinterpret_cast<FloatQuad*>(row + column / 2) = {out[0], out[1], out[2], out[3]};
  } else {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) row[column / 2 + i] = out[i];
  }
}

// Blocks: columns, tiles of rows.
template <int kParts>
GPU_INLINE void direct_product(const ProductParams& p) {
  static_assert(kThreads == 128 && kDirectDepth == 2 * kTileDepth);
  constexpr int kStages = direct_stages(kParts), kStageBytes = kParts * kPartBytes;
  const RowTile tile = row_tile(p, block_y(), kProductRows);
  if (tile.n_rows == 0) return;
  const int first_column = block_x() * kColumns;
  const auto own_weight = [&]() GPU_LAMBDA {
    return weight_of(p, p.result.gate != Gate::None ? thread() / 4 % 2 : 0, tile.expert);
  };
  unsigned char* activations = dynamic_shared();
  constexpr int kCodeBytes = kDirectCodeStages * kColumns * kDirectDepth / 2;
  unsigned char* codes_of_lanes = activations + kStages * kStageBytes;
  auto* table = reinterpret_cast<std::uint32_t*>(codes_of_lanes + kCodeBytes);

  GPU_SHARED std::int32_t x_rows[kProductRows], y_rows[kProductRows];
  GPU_SHARED float row_scales[kProductRows];
  if (thread() < kProductRows) {
    const int row = tile.first + (thread() < tile.n_rows ? thread() : tile.n_rows - 1);
    const int x_row = p.rows == nullptr ? row : p.rows[row] / p.divisor;
    x_rows[thread()] = x_row;
    y_rows[thread()] = p.result.rows == nullptr ? row : p.result.rows[row];
    row_scales[thread()] = p.x_scales[x_row] * p.result.scale;
  }
  const int n_blocks = p.weights[0].cols / kDirectDepth, n_steps = 2 * n_blocks;
  const CodeReader reader(p, own_weight(), first_column, codes_of_lanes);
  reader.copy(0);
  sync();

  constexpr int kUnits = kTileDepth / 8, kRowsAtOnce = kThreads / kUnits;
  const auto* x = static_cast<const Quad*>(p.x) + thread() % kUnits;
  const auto x_stride = static_cast<std::uint32_t>(p.x_stride / 8);
  const int to = unit_at<kTileDepth>(thread() / kUnits, thread() % kUnits);
  const auto copy = [&](int step, int stage) GPU_LAMBDA {
    if (step < n_steps) {
      GPU_UNROLL
      for (int row = 0; row < kProductRows; row += kRowsAtOnce) {
        if (row >= tile.n_rows) continue;
        const auto x_row = static_cast<std::uint32_t>(x_rows[row + thread() / kUnits]);
        GPU_UNROLL
        for (int part = 0; part < kParts; ++part)
          copy_16(activations + stage * kStageBytes + part * kPartBytes + row * kTileDepth * 2 + to,
                  x + (x_row * x_stride +
                       static_cast<std::uint32_t>((part * n_steps + step) * kUnits)));
      }
    }
    close_copies();
  };
  // Of the groups from one on: with the copies of a step that is awaited before they are read.
  const auto copy_means = [&](int first_group, unsigned char* means) GPU_LAMBDA {
    const int in_row = thread() % kMeansUnits;
    if (first_group + 8 * in_row >= p.means_stride) return;
    GPU_ROLLED
    for (int row = thread() / kMeansUnits; row < tile.n_rows; row += kThreads / kMeansUnits)
      copy_16(means + means_at(row, in_row),
              p.x_means + x_rows[row] * p.means_stride + first_group + 8 * in_row);
  };
  copy_means(0, activations + (kStages - 1) * kStageBytes);  // a stage that is free until then
  GPU_UNROLL
  for (int i = 0; i < kStages - 1; ++i) copy(i, i);

  const int group_shift = 31 - count_leading_zeros(p.weights[0].group);
  const int blocks_of_groups = (kDirectGroups << group_shift) / kDirectDepth;
  float sums[8][kTiles][4] = {};
  const auto multiply_sums = [&](float factor) GPU_LAMBDA {  // a power of two
    GPU_UNROLL
    for (int i = 0; i < 8 * kTiles * 4; ++i) sums[i / 16][i / 4 % 4][i % 4] *= factor;
  };
  // The steps of as many groups as are opened at a time.
  int step = 0, end = 0, stage = 0, n_groups = 0;
  unsigned char* means = nullptr;
  const auto multiply = [&](auto pieces) GPU_LAMBDA {
    const int in_piece = lane() % 16, unit = lane() / 16;
    const auto add_offsets = [&]() GPU_LAMBDA {
      GPU_ROLLED
      for (int first = 0; first < n_groups; first += 16) {
        std::uint32_t offsets[kTiles][2];
        GPU_UNROLL
        for (int j = 0; j < kTiles; ++j) {
          GPU_UNROLL
          for (int i = 0; i < 2; ++i) {
            const std::uint32_t* at = table +
                                      (first + 8 * i + lane() % 4 * 2) * kDirectGroupStride +
                                      column_of(lane() / 4, j);
            offsets[j][i] = pick_bytes(at[0], at[kDirectGroupStride], 0x7632);
          }
        }
        GPU_UNROLL
        for (int i = 0; i < 8; ++i) {
          if (i >= pieces()) continue;
          std::uint32_t rows[4];
          load_matrices(rows, means + means_at(16 * i + in_piece, first / 8 + unit));
          GPU_UNROLL
          for (int j = 0; j < kTiles; ++j) multiply_halves(sums[i][j], rows, offsets[j]);
        }
      }
    };
    add_offsets();
    multiply_sums(p.unit);
    GPU_ROLLED
    for (; step < end; ++step) {
      const int block = step / 2, of_groups = block % blocks_of_groups * kDirectDepth;
      await_copies<kStages - 2>();
      sync();
      // Awaited with the first step of that block.
      if (step % 2 == 3 - kStages) reader.copy(block + 1);
      copy(step + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      std::uint32_t scales[kTiles];
      Pair codes[kTiles];
      const int group = (of_groups + lane() % 4 * 32) >> group_shift;
      GPU_UNROLL
      for (int j = 0; j < kTiles; ++j) {
        const std::uint32_t both = table[group * kDirectGroupStride + column_of(lane() / 4, j)];
        scales[j] = pick_bytes(both, both, 0x1010);
        codes[j] = reader.codes(step, j);
      }
      const unsigned char* a = activations + stage * kStageBytes;
      GPU_UNROLL
      for (int part = 0; part < 4; ++part) {
        std::uint32_t weights[kTiles][2];
        GPU_UNROLL
        for (int j = 0; j < kTiles; ++j)
          open_codes(part < 2 ? codes[j].x : codes[j].y, part % 2, scales[j], weights[j]);
        std::uint32_t rows[2][4];  // the next are loaded while these are multiplied
        const unsigned char* from = a + unit_at<kTileDepth>(in_piece, 2 * part + unit);
        constexpr int kLoads = 8 * kParts;
        const auto load = [&](int i) GPU_LAMBDA {
          load_matrices(rows[i % 2],
                        from + i % kParts * kPartBytes + i / kParts * 16 * kTileDepth * 2);
        };
        load(0);
        GPU_UNROLL
        for (int i = 0; i < kLoads; ++i) {
          if (i / kParts >= pieces()) continue;
          if (i + 1 < kLoads) load(i + 1);
          GPU_UNROLL
          for (int j = 0; j < kTiles; ++j)
            multiply_halves(sums[i / kParts][j], rows[i % 2], weights[j]);
        }
      }
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
  };
  const int n_pieces = (tile.n_rows + 15) / 16;
  GPU_ROLLED
  for (int first_block = 0; first_block < n_blocks; first_block += blocks_of_groups) {
    const int first_group = first_block * kDirectDepth >> group_shift;
    const int left = static_cast<int>(p.means_stride) - first_group;
    n_groups = left < kDirectGroups ? left : kDirectGroups;
    end =
        2 * (first_block + blocks_of_groups < n_blocks ? first_block + blocks_of_groups : n_blocks);
    means = activations + (stage == 0 ? kStages - 1 : stage - 1) * kStageBytes;
    if (first_block > 0) {
      sync();
      copy_means(first_group, means);
      close_copies();
      multiply_sums(1 / p.unit);
    }
    const DeviceWeight again = own_weight();  // keeps no registers meanwhile
    Groups(p, again, first_column, table).fill(p, again, first_group);
    if (first_block > 0)
      await_copies<0>();
    else
      await_copies<kStages - 2>();
    sync();
    if (n_pieces == 8) {
      multiply([]() GPU_LAMBDA { return 8; });
    } else {
      multiply([n_pieces]() GPU_LAMBDA { return n_pieces; });
    }
  }

  // Rows are stored in a loop, which takes little code: sums go by way of shared memory, where no
  // other thread reads them.
  static_assert(kThreads * 8 * kTiles * 4 * 4 <= kStages * kStageBytes + kCodeBytes);
  auto* own_sums = reinterpret_cast<float*>(activations) + thread();
  sync();
  GPU_UNROLL
  for (int i = 0; i < 8 * kTiles * 4; ++i) own_sums[i * kThreads] = sums[i / 16][i / 4 % 4][i % 4];
  const int column = first_column + warp() * 32 + lane() % 4 * 8;
  if (column >= p.result.n_columns) return;
  const bool are_quads = is_multiple(p.result.y, 16) && p.result.y_stride % 4 == 0;
  const auto store = [&](auto store_row) GPU_LAMBDA {
    GPU_ROLLED
    for (int i = 0; i < 16; ++i) {
      const int in_tile = 8 * i + lane() / 4;
      if (in_tile >= tile.n_rows) break;
      const float scale = row_scales[in_tile];
      float own[8];
      GPU_UNROLL
      for (int j = 0; j < 8; ++j)
        own[j] = own_sums[(i / 2 * 16 + j / 2 * 4 + 2 * (i % 2) + j % 2) * kThreads] * scale;
      store_row(p.result.y + y_rows[in_tile] * p.result.y_stride, own);
    }
  };
  switch (p.result.gate) {
    case Gate::None:
      return store([&](float* y, float(&own)[8]) GPU_LAMBDA {
        store_eight(p.result, y, tile.expert, column, own, are_quads);
      });
    case Gate::Silu:
      return store([&](float* y, float(&own)[8]) GPU_LAMBDA {
        store_four<Gate::Silu>(p.result, y, tile.expert, column, own, are_quads);
      });
    case Gate::Gelu:
      return store([&](float* y, float(&own)[8]) GPU_LAMBDA {
        store_four<Gate::Gelu>(p.result, y, tile.expert, column, own, are_quads);
      });
    case Gate::ClampedSwiglu:
      return store([&](float* y, float(&own)[8]) GPU_LAMBDA {
        store_four<Gate::ClampedSwiglu>(p.result, y, tile.expert, column, own, are_quads);
      });
  }
}

}  // namespace

GPU_KERNEL(direct_product_4, ProductParams, 128) {
  direct_product<1>(p);
}
// With two halves for each activation.
GPU_KERNEL(direct_product_4_fine, ProductParams, 128) {
  direct_product<2>(p);
}

}  // namespace moeflux::gpu
GPU_CODE_END
