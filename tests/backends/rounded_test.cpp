// The fast path: every instruction set must reproduce the reference bit by bit, and the reference
// must be close to the exact product.
#include "backends/cpu/rounded.h"

#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu_backends.h"
#include "backends/random_weight.h"
#include "base/aligned_buffer.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using cpu::KernelTable;
using cpu::RoundedLayout;
using test::expect_same_bits;
using test::Random;
using test::RandomWeight;
using test::tiled_formats;

TEST(Rounded, TakesInterleavedTiles) {
  for (const WeightFormat& format : test::all_formats()) {
    EXPECT_EQ(cpu::has_rounded(arranged(format, true)), format.kind == WeightKind::Affine ||
                                                            format.kind == WeightKind::Fp4 ||
                                                            format.kind == WeightKind::Block);
    EXPECT_FALSE(cpu::has_rounded(format));
  }
}

// Rows of activations in the layout of the fast path.
class Rows {
 public:
  Rows(const cpu::RoundedKernels& kernels, const RoundedLayout& layout, const std::vector<float>& x)
      : memory_(x.size() / static_cast<std::size_t>(layout.cols) *
                static_cast<std::size_t>(layout.row_bytes)) {
    std::memset(memory_.data(), 0xCC, memory_.size());
    for (std::size_t i = 0; i * static_cast<std::size_t>(layout.cols) < x.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      kernels.quantize(layout, x.data() + row * layout.cols,
                       memory_.data() + row * layout.row_bytes);
    }
  }
  const std::byte* data() const { return memory_.data(); }
  std::span<const std::byte> bytes() const { return {memory_.data(), memory_.size()}; }

 private:
  AlignedBuffer memory_;
};

std::vector<float> products_of(const KernelTable& table, const WeightView& w,
                               const RoundedLayout& layout, const Rows& rows, std::int64_t n) {
  std::vector<float> y(static_cast<std::size_t>(n * w.rows), -7);
  std::vector<float> scratch(static_cast<std::size_t>(cpu::rounded_scratch_floats(layout)));
  table.rounded->matmul({.weight = &w,
                         .layout = &layout,
                         .row = 0,
                         .n_rows = w.rows,
                         .x = rows.data(),
                         .n = n,
                         .y = y.data(),
                         .y_stride = w.rows,
                         .rows_out = nullptr,
                         .scratch = scratch.data()});
  return y;
}

std::vector<float> product(const KernelTable& table, const RandomWeight& weight,
                           const std::vector<float>& x, std::int64_t n, int digits) {
  const WeightView w = weight.interleaved();
  const RoundedLayout layout(w.format, w.cols, digits);
  return products_of(table, w, layout, Rows(*table.rounded, layout, x), n);
}

TEST(Rounded, TheReferenceIsCloseToTheExactProduct) {
  Random random(1);
  for (const WeightFormat& format : tiled_formats()) {
    const std::int64_t cols = test::fitting_cols(format, 300);
    const RandomWeight weight(random, format, 7, cols);
    const std::int64_t n = 2;
    const std::vector<float> x = random.floats(n * cols);
    for (const int digits : {1, 2}) {
      const std::vector<float> y = product(cpu::scalar_kernels(), weight, x, n, digits);
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t r = 0; r < 7; ++r) {
          double want = 0, magnitude = 0;
          for (std::int64_t c = 0; c < cols; ++c) {
            const double term = weight.at(r, c) * x[static_cast<std::size_t>(i * cols + c)];
            want += term;
            magnitude += term * term;
          }
          // A value is rounded by at most half a unit of the largest code of its group.
          EXPECT_NEAR(y[static_cast<std::size_t>(i * 7 + r)], want,
                      (digits == 1 ? 0.05 : 2e-4) * std::sqrt(magnitude))
              << test::format_name(format) << " digits " << digits;
        }
      }
    }
  }
}

TEST(Rounded, ValuesOnTheGridAreExact) {
  Random random(2);
  const WeightFormat format{WeightKind::Affine, 4, 64, 0, DType::F32};
  const RandomWeight weight(random, format, 5, 256);
  for (const int digits : {1, 2}) {
    const int largest = digits == 1 ? 127 : 127 * 256;
    std::vector<float> x(256);
    for (float& value : x) value = static_cast<float>(random.integer(-largest, largest));
    for (std::size_t g = 0; g < 4; ++g) x[g * 64] = static_cast<float>(largest);  // scales of 1
    const std::vector<float> y = product(cpu::scalar_kernels(), weight, x, 1, digits);
    for (std::int64_t r = 0; r < 5; ++r) {
      double want = 0;
      for (std::int64_t c = 0; c < 256; ++c)
        want += weight.at(r, c) * x[static_cast<std::size_t>(c)];
      EXPECT_NEAR(y[static_cast<std::size_t>(r)], want, 1e-5 * largest * 16);
    }
  }
}

class RoundedTables : public testing::TestWithParam<std::string> {
 protected:
  const KernelTable& table() const { return cpu::select_kernels(GetParam()); }
};

TEST_P(RoundedTables, RoundingIsTheReference) {
  Random random(3);
  for (const WeightFormat& format : tiled_formats()) {
    for (const std::int64_t wanted : {1, 200, 1000}) {
      const std::int64_t cols = test::fitting_cols(format, wanted);
      std::vector<float> x = random.floats(cols);
      x[0] = 0.5f;                                           // ties
      if (cols > 64) std::fill_n(x.begin() + 32, 32, 0.0f);  // a group of zeros, for groups of 32
      x[static_cast<std::size_t>(cols - 1)] = 1e-42f;
      if (cols > 400) {  // a group so small that the inverse of its scale is infinite
        std::fill_n(x.begin() + 256, 128, 0.0f);
        x[256] = 1e-36f;
        x[257] = -1e-38f;
      }
      for (const int digits : {1, 2}) {
        const RoundedLayout layout(format, cols, digits);
        const Rows want(cpu::rounded_scalar(), layout, x), got(*table().rounded, layout, x);
        EXPECT_TRUE(std::memcmp(want.data(), got.data(), want.bytes().size()) == 0)
            << test::format_name(format) << " " << cols << " digits " << digits;
      }
    }
  }
}

TEST_P(RoundedTables, ProductsAreTheReference) {
  Random random(4);
  for (const WeightFormat& format : tiled_formats()) {
    for (const std::int64_t wanted : {1, 300, 1024}) {
      const std::int64_t cols = test::fitting_cols(format, wanted);
      for (const std::int64_t rows : {1, 4, 16, 35}) {
        const RandomWeight weight(random, format, rows, cols);
        for (const std::int64_t n : {1, 2, 3, 4, 7, 8, 9, 18}) {
          const std::vector<float> x = random.floats(n * cols);
          for (const int digits : {1, 2}) {
            expect_same_bits(product(cpu::scalar_kernels(), weight, x, n, digits),
                             product(table(), weight, x, n, digits),
                             fmt::format("{} {}x{} n {} digits {}", test::format_name(format), rows,
                                         cols, n, digits));
          }
        }
      }
    }
  }
}

// Shapes of no round numbers: groups of activations that are not full, tiles that are short.
TEST_P(RoundedTables, OddShapesAreTheReference) {
  Random random(12);
  for (const WeightFormat& format : tiled_formats()) {
    for (int i = 0; i < 6; ++i) {
      const std::int64_t rows = random.integer(1, 70), n = random.integer(1, i < 3 ? 7 : 70);
      const std::int64_t step = test::fitting_cols(format, 1);
      const std::int64_t cols = step * random.integer(1, 640 / step);
      const RandomWeight weight(random, format, rows, cols);
      const std::vector<float> x = random.floats(n * cols);
      for (const int digits : {1, 2}) {
        expect_same_bits(product(cpu::scalar_kernels(), weight, x, n, digits),
                         product(table(), weight, x, n, digits),
                         fmt::format("{} {}x{} n {} digits {}", test::format_name(format), rows,
                                     cols, n, digits));
      }
    }
  }
}

// More rows of activations than one pass over the weights takes.
TEST_P(RoundedTables, ManyRowsAreTheReference) {
  Random random(7);
  const std::int64_t n = 131;
  const std::vector<float> x = random.floats(n * 4096);
  for (const WeightFormat& format :
       {WeightFormat{WeightKind::Affine, 4, 128, 0, DType::F16},
        WeightFormat{WeightKind::Affine, 6, 128, 0, DType::F16},
        WeightFormat{.kind = WeightKind::Fp4, .group = 32, .scale_dtype = DType::U8},
        WeightFormat{.kind = WeightKind::Fp4, .group = 16, .scale_dtype = DType::F8E4M3},
        WeightFormat{.kind = WeightKind::Block, .blocks = BlockType::Q5_K},
        WeightFormat{.kind = WeightKind::Block, .blocks = BlockType::Q6_K},
        WeightFormat{.kind = WeightKind::Block, .blocks = BlockType::IQ3_S}}) {
    const RandomWeight weight(random, format, 5, 4096);
    for (const int digits : {1, 2}) {
      expect_same_bits(product(cpu::scalar_kernels(), weight, x, n, digits),
                       product(table(), weight, x, n, digits));
    }
  }
}

TEST_P(RoundedTables, TheLargestCodesDoNotOverflow) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      const std::int64_t cols = 512;
      const WeightFormat format{WeightKind::Affine, bits, group, 0, DType::F32, true};
      const std::vector<std::uint8_t> data(static_cast<std::size_t>(cols * bits / 8), 0xFF);
      const std::vector<float> ones(static_cast<std::size_t>(cols / group), 1.0f), zeros(16, 0.0f);
      const WeightView w{.format = format,
                         .rows = 1,
                         .cols = cols,
                         .data = std::as_bytes(std::span(data)).data(),
                         .scales = std::as_bytes(std::span(ones)).data(),
                         .biases = std::as_bytes(std::span(zeros)).data()};
      for (const int digits : {1, 2}) {
        for (const std::int64_t n : {1, 2, 4, 8, 20}) {
          const RoundedLayout layout(format, cols, digits);
          const float largest = layout.largest_code();
          const Rows rows(*table().rounded, layout,
                          std::vector<float>(static_cast<std::size_t>(n * cols), -largest));
          std::vector<float> scratch(static_cast<std::size_t>(cpu::rounded_scratch_floats(layout)));
          std::vector<float> y(static_cast<std::size_t>(n));
          table().rounded->matmul({.weight = &w,
                                   .layout = &layout,
                                   .row = 0,
                                   .n_rows = 1,
                                   .x = rows.data(),
                                   .n = n,
                                   .y = y.data(),
                                   .y_stride = 1,
                                   .rows_out = nullptr,
                                   .scratch = scratch.data()});
          for (const float value : y) {
            EXPECT_FLOAT_EQ(value, -largest * static_cast<float>(cols * ((1 << bits) - 1)))
                << bits << " bits, groups of " << group << ", digits " << digits << ", n " << n;
          }
        }
      }
    }
  }
}

// All codes are 6 or -6, the largest E2M1 numbers.
TEST_P(RoundedTables, TheLargestNumbersDoNotOverflow) {
  const std::int64_t cols = 512;
  const std::vector<std::uint8_t> scales(static_cast<std::size_t>(cols / 16), 127);  // 2^0
  for (const int byte : {0x77, 0xFF}) {
    const std::vector<std::uint8_t> data(static_cast<std::size_t>(cols / 2),
                                         static_cast<std::uint8_t>(byte));
    for (const int group : {16, 32}) {
      const WeightView w{.format = {.kind = WeightKind::Fp4,
                                    .group = group,
                                    .scale_dtype = DType::U8,
                                    .is_interleaved = true},
                         .rows = 1,
                         .cols = cols,
                         .data = std::as_bytes(std::span(data)).data(),
                         .scales = std::as_bytes(std::span(scales)).data(),
                         .biases = nullptr};
      for (const int digits : {1, 2}) {
        for (const std::int64_t n : {1, 2, 4, 8, 20}) {
          const RoundedLayout layout(w.format, cols, digits);
          const float largest = layout.largest_code();
          const Rows rows(*table().rounded, layout,
                          std::vector<float>(static_cast<std::size_t>(n * cols), -largest));
          for (const float value : products_of(table(), w, layout, rows, n)) {
            EXPECT_FLOAT_EQ(value,
                            -largest * static_cast<float>(cols) * (byte == 0x77 ? 6.0f : -6.0f))
                << "groups of " << group << ", digits " << digits << ", n " << n;
          }
        }
      }
    }
  }
}

// Blocks of the largest codes with activations whose digits are the largest: they are in turns, so
// that some group has only 127 * 256 and -128 each.
TEST_P(RoundedTables, TheLargestIntegersOfBlocksDoNotOverflow) {
  Random random(15);
  const std::int64_t cols = 256;
  for (int type = 1; type <= static_cast<int>(BlockType::NVFP4); ++type) {
    const WeightFormat format{.kind = WeightKind::Block, .blocks = static_cast<BlockType>(type)};
    const std::int64_t block_bytes = block_shape(format.blocks).bytes;
    for (const int byte : {0x00, 0x77, 0x88, 0xFF}) {
      const auto bytes = static_cast<std::size_t>(data_row_bytes(format, cols));
      std::vector<std::byte> row(bytes, static_cast<std::byte>(byte));
      for (std::int64_t b = 0; b < std::ssize(row); b += block_bytes)
        test::set_block_scales(random, format.blocks, row.data() + b);
      const WeightView w{
          .format = arranged(format, true), .rows = 1, .cols = cols, .data = row.data()};
      std::vector<std::byte> scratch(tile_scratch_bytes(format, cols));
      arrange_tile({.format = format, .rows = 1, .cols = cols, .data = row.data()}, 0, scratch);
      for (const int digits : {1, 2}) {
        const RoundedLayout layout(format, cols, digits);
        for (const float rest : {1.0f, -1.0f, 127.0f * 256 - 128, 128.0f - 127 * 256}) {
          const std::int64_t n = 9;
          std::vector<float> x(static_cast<std::size_t>(n * cols), rest);
          for (std::size_t i = 0; i < x.size(); i += 64) x[i] = std::copysign(127.0f * 256, rest);
          if (std::abs(rest) == 1) std::fill(x.begin(), x.end(), rest);  // the largest of its group
          const Rows rows(cpu::rounded_scalar(), layout, x);
          for (const std::int64_t some : {std::int64_t{1}, n}) {
            const std::vector<float> want =
                products_of(cpu::scalar_kernels(), w, layout, rows, some);
            const std::vector<float> got = products_of(table(), w, layout, rows, some);
            for (std::size_t i = 0; i < got.size(); ++i) {
              ASSERT_TRUE(std::memcmp(&got[i], &want[i], sizeof(float)) == 0)
                  << test::format_name(format) << " of " << byte << ", digits " << digits << ", "
                  << rest << ": " << got[i] << " is not " << want[i];
            }
          }
        }
      }
    }
  }
}

// A scale that is NaN makes its row NaN, whatever it is multiplied by, and no other.
TEST_P(RoundedTables, ScalesThatAreNoNumbersStayInTheirRow) {
  Random random(13);
  const std::int64_t rows = 21, cols = 352;
  for (const auto& [dtype, group, bad] :
       {std::tuple{DType::U8, 32, 0xFF}, {DType::F8E4M3, 16, 0x7F}, {DType::F8E4M3, 16, 0xFF}}) {
    const WeightFormat format{.kind = WeightKind::Fp4, .group = group, .scale_dtype = dtype};
    const RandomWeight weight(random, format, rows, cols);
    WeightView w = weight.interleaved();
    std::vector<std::byte> scales(w.scales, w.scales + rows * (cols / group));
    const std::int64_t first_tile = 16 * (cols / group);
    scales[static_cast<std::size_t>(first_tile - 16 + 3)] = static_cast<std::byte>(bad);  // row 3
    scales[static_cast<std::size_t>(first_tile + 4)] = static_cast<std::byte>(bad);       // row 20
    w.scales = scales.data();
    for (const std::int64_t n : {1, 3, 20}) {
      const RoundedLayout layout(format, cols, 2);
      const std::vector<float> x = random.floats(n * cols);
      const std::vector<float> want = product(cpu::scalar_kernels(), weight, x, n, 2);
      const Rows rounded(*table().rounded, layout, x);
      const std::vector<float> got = products_of(table(), w, layout, rounded, n);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::size_t row = i % static_cast<std::size_t>(rows);
        if (row == 3 || row == 20) {
          EXPECT_TRUE(std::isnan(got[i])) << i;
        } else {
          EXPECT_EQ(got[i], want[i]) << i;
        }
      }
    }
  }
}

// Some tiles of a matrix into scattered places.
TEST_P(RoundedTables, PartsOfAMatrixAreTheReference) {
  Random random(11);
  for (const WeightFormat& format : tiled_formats()) {
    const std::int64_t cols = test::fitting_cols(format, 200), rows = 55, stride = 90;
    const RandomWeight weight(random, format, rows, cols);
    const WeightView w = weight.interleaved();
    for (const std::int64_t n : {2, 5}) {
      const RoundedLayout layout(format, cols, 2);
      const Rows x(cpu::rounded_scalar(), layout, random.floats(n * cols));
      const std::vector<std::int32_t> places{3, 0, 4, 1, 2};
      std::vector<float> scratch(static_cast<std::size_t>(cpu::rounded_scratch_floats(layout)));
      const auto run = [&](const cpu::RoundedKernels& kernels) {
        std::vector<float> y(static_cast<std::size_t>(5 * stride), -7);
        kernels.matmul({.weight = &w,
                        .layout = &layout,
                        .row = 16,
                        .n_rows = n == 2 ? 32 : 39,
                        .x = x.data(),
                        .n = n,
                        .y = y.data() + 1,
                        .y_stride = stride,
                        .rows_out = places.data(),
                        .scratch = scratch.data()});
        return y;
      };
      expect_same_bits(run(cpu::rounded_scalar()), run(*table().rounded),
                       fmt::format("{} n {}", test::format_name(format), n));
    }
  }
}

TEST_P(RoundedTables, WhatIsNotFiniteStaysSo) {
  Random random(5);
  const WeightFormat format{WeightKind::Affine, 4, 64, 0, DType::BF16};
  const RandomWeight weight(random, format, 4, 128);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> x = random.floats(256);
    x[70] = bad;
    for (const int digits : {1, 2}) {
      const std::vector<float> y = product(table(), weight, x, 2, digits);
      for (int r = 0; r < 4; ++r) {
        EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(r)]));
        EXPECT_TRUE(std::isfinite(y[static_cast<std::size_t>(4 + r)]));  // the other row
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, RoundedTables, testing::ValuesIn(test::supported_isas()));

}  // namespace
}  // namespace moeflux
