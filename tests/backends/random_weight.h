// A matrix of random weights in any stored format, together with its values worked out bit by bit
// from the definition of the format (of blocks: by quant/block_codec.h, which has tests of its
// own); where it can, both in rows and in interleaved tiles. Planes lie at odd addresses.
#pragma once

#include <string>
#include <vector>

#include "quant/weight_format.h"
#include "support/random.h"

namespace moeflux::test {

class RandomWeight {
 public:
  RandomWeight(Random& random, const WeightFormat& format, std::int64_t rows, std::int64_t cols);

  WeightView view() const;         // in rows
  WeightView interleaved() const;  // the same matrix in interleaved tiles, if it can be
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  double at(std::int64_t row, std::int64_t col) const { return values_[row * cols_ + col]; }

 private:
  void fill_plain(Random& random);
  void fill_affine(Random& random);
  void fill_fp4(Random& random);
  void fill_fp8(Random& random);
  void fill_blocks(Random& random);

  void interleave();

  static std::vector<std::byte> padding() { return std::vector<std::byte>(1); }
  struct Planes {
    std::vector<std::byte> data = padding(), scales = padding(),
                           biases = padding();  // the first byte is padding
  };
  WeightView view_of(const Planes& planes, bool is_interleaved) const;

  WeightFormat format_;
  std::int64_t rows_, cols_, block_row0_ = 0;
  Planes in_rows_, interleaved_;
  std::vector<double> values_;
};

// Scales of a block such that its weights are of a model's size, some negative, some subnormal.
void set_block_scales(Random& random, BlockType type, std::byte* block);

std::vector<WeightFormat> all_formats();
std::string format_name(const WeightFormat& format);  // fit for the name of a test

// The smallest number of columns >= `cols` that the format can have.
std::int64_t fitting_cols(const WeightFormat& format, std::int64_t cols);

// All that products with rounded activations take.
std::vector<WeightFormat> tiled_formats();

}  // namespace moeflux::test
