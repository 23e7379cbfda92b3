// The tables of inner loops: each must compute the same bits as the scalar one.
#include "backends/cpu/kernels.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu/delta_step.h"
#include "backends/cpu/row_dots.h"
#include "backends/cpu/rows.h"
#include "backends/cpu_backends.h"
#include "backends/random_weight.h"
#include "support/expect_error.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using cpu::KernelTable;
using test::expect_same_bits;
using test::Random;
using test::RandomWeight;

constexpr std::int64_t kLengths[] = {0,  1,  2,  3,  7,  8,  9,  15, 16,  17,  31,
                                     32, 33, 47, 48, 63, 64, 65, 96, 100, 255, 1000};

TEST(Kernels, ScalarComesFirstAndIsAlwaysThere) {
  ASSERT_FALSE(cpu::supported_kernels().empty());
  EXPECT_STREQ(cpu::supported_kernels()[0]->name, "scalar");
  for (const KernelTable* table : cpu::supported_kernels()) {
    EXPECT_TRUE(table->decode_row && table->dot && table->row_dots && table->axpy &&
                table->matvec && table->delta_step)
        << table->name;
  }
}

TEST(Kernels, Selection) {
  EXPECT_STREQ(cpu::select_kernels("scalar").name, "scalar");
  EXPECT_EQ(cpu::select_kernels("").name, test::supported_isas().back());
  test::expect_error(Errc::BadInput, {"\"mmx\"", "scalar"}, [] { cpu::select_kernels("mmx"); });
}

TEST(Kernels, DotAgainstDouble) {
  Random random(1);
  for (const std::int64_t n : kLengths) {
    const std::vector<float> a = random.floats(n), b = random.floats(n);
    double sum = 0, magnitude = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      sum += static_cast<double>(a[i]) * b[i];
      magnitude += std::abs(static_cast<double>(a[i]) * b[i]);
    }
    EXPECT_NEAR(cpu::scalar_kernels().dot(a.data(), b.data(), n), sum, 1e-6 * magnitude) << n;
  }
}

class Tables : public testing::TestWithParam<std::string> {
 protected:
  const KernelTable& table() const { return cpu::select_kernels(GetParam()); }
  const KernelTable& scalar() const { return cpu::scalar_kernels(); }
};

TEST_P(Tables, DotIsTheScalarOne) {
  Random random(2);
  for (const std::int64_t n : kLengths) {
    for (const int shift : {0, 1, 3}) {  // unaligned operands
      const std::vector<float> a = random.floats(n + shift), b = random.floats(n + 5);
      const float want = scalar().dot(a.data() + shift, b.data() + 5 - shift, n);
      const float got = table().dot(a.data() + shift, b.data() + 5 - shift, n);
      expect_same_bits({&want, 1}, {&got, 1}, std::to_string(n));
    }
  }
}

// Every size of a tile and its remainders, rows longer than a block of columns, tails, operands at
// odd addresses; what lies between the outputs must stay.
TEST_P(Tables, RowDotsAreManyDots) {
  Random random(3);
  for (const std::int64_t n : {0, 1, 15, 16, 17, 48, 512, 530, 1100}) {
    for (const std::int64_t n_a : {0, 1, 2, 3, 4, 5, 6, 7, 12, 13}) {
      for (const std::int64_t n_x : {0, 1, 2, 3, 4, 5, 6, 7, 8, 23, 24, 25}) {
        if (n > 48 && n_x * n_a > 90 && (n_x != 25 || n_a != 13)) continue;  // to be quick
        const std::int64_t a_stride = n + 1, x_stride = n + 3, y_stride = n_a + 2;
        const std::vector<float> a = random.floats(n_a * a_stride + 1),
                                 x = random.floats(n_x * x_stride + 1);
        std::vector<float> want(static_cast<std::size_t>(n_x * y_stride + 1), -7), got = want;
        for (std::int64_t i = 0; i < n_x; ++i) {
          for (std::int64_t r = 0; r < n_a; ++r) {
            want[i * y_stride + r] =
                scalar().dot(a.data() + 1 + r * a_stride, x.data() + 1 + i * x_stride, n);
          }
        }
        table().row_dots({.a = a.data() + 1,
                          .a_stride = a_stride,
                          .n_a = n_a,
                          .x = x.data() + 1,
                          .x_stride = x_stride,
                          .n_x = n_x,
                          .n = n,
                          .y = got.data(),
                          .y_stride = y_stride,
                          .next = nullptr,
                          .next_bytes = 0});
        expect_same_bits(want, got, fmt::format("{} x {} rows of {}", n_a, n_x, n));
      }
    }
  }
}

TEST_P(Tables, AxpyIsTheScalarOneAndStaysInBounds) {
  Random random(4);
  for (const std::int64_t n : kLengths) {
    const std::vector<float> x = random.floats(n + 1);
    std::vector<float> want = random.floats(n + 40), got = want;
    for (std::int64_t i = 0; i < n; ++i) want[1 + i] += 0.37f * x[i];
    table().axpy(0.37f, x.data(), got.data() + 1, n);
    expect_same_bits(want, got, std::to_string(n));
  }
}

TEST_P(Tables, DecodeRowIsTheScalarOneAndStaysInBounds) {
  Random random(5);
  for (const WeightFormat& format : test::all_formats()) {
    for (const std::int64_t wanted : {1, 3, 8, 17, 96, 250}) {
      const std::int64_t cols = test::fitting_cols(format, wanted);
      const RandomWeight weight(random, format, 5, cols);
      for (std::int64_t row = 0; row < 5; ++row) {
        std::vector<float> want(static_cast<std::size_t>(cols + 16), -7), got = want;
        scalar().decode_row(weight.view(), row, want.data());
        table().decode_row(weight.view(), row, got.data());
        expect_same_bits(want, got, test::format_name(format));
        std::vector<double> exact;
        for (std::int64_t c = 0; c < cols; ++c) exact.push_back(weight.at(row, c));
        test::expect_close(std::span(got).first(static_cast<std::size_t>(cols)), exact, 3e-7,
                           test::format_name(format));
      }
    }
  }
}

TEST_P(Tables, MatvecIsDecodingAndDots) {
  Random random(6);
  for (const WeightFormat& format : test::all_formats()) {
    for (const std::int64_t wanted : {1, 17, 64, 250, 512}) {
      const std::int64_t cols = test::fitting_cols(format, wanted), x_stride = cols + 1;
      const RandomWeight weight(random, format, 11, cols);
      const std::vector<float> x = random.floats(6 * x_stride);
      std::vector<float> row(static_cast<std::size_t>(cols));
      for (const std::int64_t n : {1, 2, 3, 4, 6}) {
        for (const std::int64_t n_rows : {0, 1, 3, 4, 5, 8}) {
          const std::int64_t first = n % 2 * 3, y_stride = n_rows + 2;
          std::vector<float> want(static_cast<std::size_t>(n * y_stride), -7), got = want;
          for (std::int64_t r = 0; r < n_rows; ++r) {
            scalar().decode_row(weight.view(), first + r, row.data());
            for (std::int64_t i = 0; i < n; ++i)
              want[i * y_stride + r] = scalar().dot(row.data(), x.data() + i * x_stride, cols);
          }
          const WeightView view = weight.view();
          table().matvec({.matrix = &view,
                          .row = first,
                          .n_rows = n_rows,
                          .x = x.data(),
                          .x_stride = x_stride,
                          .n = n,
                          .y = got.data(),
                          .y_stride = y_stride,
                          .scratch = row.data()});
          expect_same_bits(want, got,
                           fmt::format("{} {} x {}", test::format_name(format), cols, n));
        }
      }
    }
  }
}

TEST_P(Tables, DeltaStepIsTheScalarOne) {
  Random random(7);
  for (const int d_key : {1, 5, 128}) {
    for (const int d_value : {1, 15, 32, 64, 77, 128}) {
      const std::vector<float> q = random.floats(5 * d_key), k = random.floats(5 * d_key),
                               v = random.floats(3 * (d_value + 1));
      const std::vector<float> gates{0.93f, 0.4f, 0.2f, 1.0f, 0.99f, 0.7f};
      std::vector<float> want_state = random.floats(d_key * d_value + 1), got_state = want_state;
      std::vector<float> want(static_cast<std::size_t>(3 * (d_value + 2)), -7), got = want;
      cpu::DeltaStep step{.state = want_state.data(),
                          .state_stride = d_value,
                          .d_key = d_key,
                          .n_columns = d_value,
                          .n = 3,
                          .q = q.data(),
                          .k = k.data(),
                          .qk_stride = 2 * d_key,
                          .v = v.data(),
                          .v_stride = d_value + 1,
                          .decay = gates.data(),
                          .beta = gates.data() + 1,
                          .gate_stride = 2,
                          .out = want.data(),
                          .out_stride = d_value + 2};
      scalar().delta_step(step);
      step.state = got_state.data();
      step.out = got.data();
      table().delta_step(step);
      expect_same_bits(want_state, got_state, fmt::format("{} x {}", d_key, d_value));
      expect_same_bits(want, got, fmt::format("{} x {}", d_key, d_value));
    }
  }
}

// Every byte of E4M3, so that subnormals and NaN are met; in vectors and in a tail.
TEST_P(Tables, EveryFp8) {
  std::vector<std::uint8_t> bytes(256 + 5);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  const std::vector<float> scales{1.0f, -0.375f, 3.0f};
  const WeightView view{
      .format = {.kind = WeightKind::Fp8Block, .block = 128, .scale_dtype = DType::F32},
      .rows = 1,
      .cols = static_cast<std::int64_t>(bytes.size()),
      .data = std::as_bytes(std::span(bytes)).data(),
      .scales = std::as_bytes(std::span(scales)).data(),
      .biases = nullptr};
  std::vector<float> want(bytes.size()), got(bytes.size());
  scalar().decode_row(view, 0, want.data());
  table().decode_row(view, 0, got.data());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(std::isnan(got[i]), (bytes[i] & 0x7F) == 0x7F) << i;
    EXPECT_TRUE(std::isnan(want[i]) || std::memcmp(&want[i], &got[i], 4) == 0) << i;
  }
}

// Every byte of a scale, with a scale of the matrix that multiplies, divides or is not there.
TEST_P(Tables, EveryFp4Scale) {
  std::vector<std::uint8_t> scales(256), data(256 * 8);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(i);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<std::uint8_t>(0x10 + 0x22 * (i % 8));  // all numbers, in order
  const float tensor_scale = 0.3f;
  for (const DType dtype : {DType::U8, DType::F8E4M3}) {
    for (const int way : {0, 1, 2}) {
      const WeightView view{.format = {.kind = WeightKind::Fp4,
                                       .group = 16,
                                       .scale_dtype = dtype,
                                       .has_tensor_scale = way > 0,
                                       .tensor_scale_divides = way == 2},
                            .rows = 1,
                            .cols = 256 * 16,
                            .data = std::as_bytes(std::span(data)).data(),
                            .scales = std::as_bytes(std::span(scales)).data(),
                            .biases = std::as_bytes(std::span(&tensor_scale, 1)).data()};
      std::vector<float> want(256 * 16), got(want.size());
      scalar().decode_row(view, 0, want.data());
      table().decode_row(view, 0, got.data());
      EXPECT_EQ(std::isnan(want[254 * 16]), false);
      EXPECT_TRUE(std::isnan(want[255 * 16 + 3]));
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got[i])
                                        : std::memcmp(&want[i], &got[i], sizeof(float)) == 0)
            << dtype_name(dtype) << " " << way << ", " << i << ": " << want[i] << " " << got[i];
      }
    }
  }
}

void expect_same_or_nan(std::span<const float> want, std::span<const float> got, float scale) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got[i])
                                    : std::memcmp(&want[i], &got[i], sizeof(float)) == 0)
        << "scale " << scale << ", " << i << ": " << want[i] << " != " << got[i];
  }
}

// Scales that cannot take a power of two, and rows with and without a NaN.
TEST_P(Tables, Fp8ScalesOfAnySize) {
  Random random(8);
  constexpr std::int64_t kRows = 9, kCols = 128 + 64 + 16;
  std::vector<std::byte> bytes(kRows * kCols);
  for (std::byte& b : bytes)
    b = static_cast<std::byte>(random.integer(0, 0x7E) | random.integer(0, 1) << 7);
  bytes[3 * kCols + 100] = std::byte{0x7F};
  bytes[5 * kCols + 207] = std::byte{0xFF};
  const std::vector<float> x = random.floats(2 * kCols);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float scale : {0.0f, 1e-45f, -1e-38f, 0.01f, 127.99f, 128.0f, -300.0f, 0x1p118f,
                            -3e38f, kInf, std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> scales{scale, 0.5f};
    const WeightView view{
        .format = {.kind = WeightKind::Fp8Block, .block = 128, .scale_dtype = DType::F32},
        .rows = kRows,
        .cols = kCols,
        .data = bytes.data(),
        .scales = std::as_bytes(std::span(scales)).data(),
        .biases = nullptr};
    std::vector<float> want(kCols), got(kCols), products(2 * kRows), sums(2 * kRows);
    for (std::int64_t r = 0; r < kRows; ++r) {
      scalar().decode_row(view, r, want.data());
      table().decode_row(view, r, got.data());
      expect_same_or_nan(want, got, scale);
      for (std::int64_t i = 0; i < 2; ++i)
        sums[i * kRows + r] = scalar().dot(want.data(), x.data() + i * kCols, kCols);
    }
    for (const std::int64_t n : {1, 2}) {
      table().matvec({.matrix = &view,
                      .row = 0,
                      .n_rows = kRows,
                      .x = x.data(),
                      .x_stride = kCols,
                      .n = n,
                      .y = products.data(),
                      .y_stride = kRows,
                      .scratch = got.data()});
      const auto n_sums = static_cast<std::size_t>(n * kRows);
      expect_same_or_nan(std::span(sums).first(n_sums), std::span(products).first(n_sums), scale);
    }
  }
}

// Every 16-bit pattern, so that subnormals, infinities and NaN are met in vectors as well as in
// tails.
TEST_P(Tables, EveryHalf) {
  for (const WeightKind kind : {WeightKind::F16, WeightKind::BF16}) {
    std::vector<std::uint16_t> bits(65536);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
    const WeightView view{.format = {.kind = kind},
                          .rows = 1,
                          .cols = 65536,
                          .data = std::as_bytes(std::span(bits)).data(),
                          .scales = nullptr,
                          .biases = nullptr};
    std::vector<float> want(65536), got(65536);
    scalar().decode_row(view, 0, want.data());
    table().decode_row(view, 0, got.data());
    for (std::size_t i = 0; i < bits.size(); ++i) {
      if (std::isnan(want[i])) {
        ASSERT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_EQ(std::memcmp(&want[i], &got[i], 4), 0) << i;
      }
    }
  }
}

TEST_P(Tables, NonFiniteNumbersStayInTheirLane) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::int64_t n : {1, 5, 16, 21}) {
    for (std::int64_t at = 0; at < n; ++at) {
      std::vector<float> a(static_cast<std::size_t>(n), 1.0f), b(static_cast<std::size_t>(n), 2.0f);
      a[at] = kInf;
      EXPECT_EQ(table().dot(a.data(), b.data(), n), kInf) << n << " at " << at;
      b[at] = 0;  // inf * 0
      EXPECT_TRUE(std::isnan(table().dot(a.data(), b.data(), n))) << n << " at " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Tables, testing::ValuesIn(test::supported_isas()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace moeflux
