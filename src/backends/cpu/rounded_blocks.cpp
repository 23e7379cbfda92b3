// The reference of products with blocks: plain loops over what quant/block_codec.h says that blocks
// hold.
#include "backends/cpu/rounded_blocks.h"

#include <array>
#include <cmath>

#include "quant/block_codec.h"

namespace moeflux::cpu {
namespace {

// The integers of a tile as [row][padded] and its scales and biases as [group][row].
struct Opened {
  Opened(const RoundedMatmul& op, std::int64_t row) noexcept
      : layout(*op.layout),
        integers(static_cast<std::int8_t*>(static_cast<void*>(rounded_scratch(op).codes))),
        scales(rounded_scratch(op).scales),
        biases(rounded_scratch(op).biases) {
    const WeightView& w = *op.weight;
    const BlockType type = w.format.blocks;
    const BlockShape shape = block_shape(type);
    const std::int64_t n_rows = rows_of(op, row);
    std::array<std::byte, kTileRows * kMostBlockBytes> blocks;
    for (std::int64_t b = 0; b < w.cols / shape.values; ++b) {
      take_blocks(type, w.data + row * data_row_bytes(w.format, w.cols), n_rows, w.cols, b,
                  blocks.data());
      for (std::int64_t r = 0; r < n_rows; ++r) {
        split_block(type, blocks.data() + r * shape.bytes, parts_);
        put(b * shape.values, shape.values, r);
      }
    }
  }
  static std::int64_t rows_of(const RoundedMatmul& op, std::int64_t row) {
    return std::min(op.weight->rows - row, kTileRows);
  }

  const RoundedLayout& layout;
  std::int8_t* integers;
  float *scales, *biases;

 private:
  void put(std::int64_t first, std::int64_t n, std::int64_t r) {
    for (std::int64_t i = 0; i < n; ++i)
      integers[r * layout.padded + first + i] = parts_.integers[static_cast<std::size_t>(i)];
    for (std::int64_t i = 0, k = 0; i < n; i += layout.weight_group, ++k) {
      const std::int64_t at = (first + i) / layout.weight_group * kTileRows + r;
      scales[at] = parts_.scales[static_cast<std::size_t>(k)];
      if (layout.sums == RoundedSums::Plain)
        biases[at] = parts_.biases[static_cast<std::size_t>(k)];
    }
  }

  BlockParts parts_;
};

template <class T>
const T* part(const std::byte* row, std::int64_t offset) {
  return static_cast<const T*>(static_cast<const void*>(row + offset));
}

float dot(const Opened& tile, std::int64_t r, const std::byte* x) {
  const RoundedLayout& layout = tile.layout;
  const auto* high = part<std::int8_t>(x, 0);
  const auto* low = part<std::int8_t>(x, layout.low_at);
  float acc = 0, sum = 0;
  for (std::int64_t g = 0; g < layout.n_weight_groups; ++g) {
    const std::int64_t first = g * layout.weight_group, end = first + layout.weight_group;
    int products = 0;
    for (std::int64_t c = first; c < end; ++c) {
      const int code = layout.digits == 1 ? high[c] : 256 * high[c] + low[c];
      products += tile.integers[r * layout.padded + c] * code;
    }
    sum = std::fma(static_cast<float>(products), tile.scales[g * kTileRows + r], sum);
    if (layout.sums == RoundedSums::Plain)
      sum = std::fma(tile.biases[g * kTileRows + r], part<float>(x, layout.sums_at)[g], sum);
    if (end % layout.group != 0 && end != layout.cols) continue;
    acc = std::fma(sum, part<float>(x, layout.scales_at)[first / layout.group], acc);
    sum = 0;
  }
  return acc;
}

}  // namespace

void rounded_blocks_scalar(const RoundedMatmul& op) noexcept {
  for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kTileRows) {
    const Opened tile(op, row);
    for (std::int64_t r = 0; r < Opened::rows_of(op, row); ++r) {
      for (std::int64_t i = 0; i < op.n; ++i) {
        const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i] : i;
        op.y[target * op.y_stride + row - op.row + r] =
            dot(tile, r, op.x + i * op.layout->row_bytes);
      }
    }
  }
}

}  // namespace moeflux::cpu
