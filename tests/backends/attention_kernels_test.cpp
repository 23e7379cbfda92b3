// The kernels of attention and the functions of vectors: every table against the scalar one, bit
// for bit, and that one against double.
#include "backends/cpu/attention_kernels.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu_backends.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using cpu::AttentionKernels;
using cpu::SoftmaxSum;
using test::expect_close;
using test::expect_same_bits;
using test::Random;

constexpr float kInf = std::numeric_limits<float>::infinity();

class AttentionTables : public testing::TestWithParam<std::string> {
 protected:
  static const AttentionKernels& scalar() { return *cpu::scalar_kernels().attention; }
  static const AttentionKernels& table() { return *cpu::select_kernels(GetParam()).attention; }
};

TEST_P(AttentionTables, TileDots) {
  Random random(1);
  for (const int d : {1, 20, 64, 65, 130, 256}) {
    for (const int n_rows : {1, 2, 3, 5, 8, 17}) {
      for (const int n_tiles : {1, 2, 5}) {
        const std::int64_t row_stride = d + 3, width = n_tiles * 16;
        const std::vector<float> rows = random.floats(n_rows * row_stride),
                                 tiles = random.floats(width * d);
        std::vector<double> want;
        for (int r = 0; r < n_rows; ++r) {
          for (int at = 0; at < width; ++at) {
            double sum = 0;
            for (int c = 0; c < d; ++c) {
              sum += static_cast<double>(rows[r * row_stride + c]) *
                     tiles[(at / 16 * d + c) * 16 + at % 16];
            }
            want.push_back(sum);
          }
        }
        std::vector<float> expected(want.size(), -7), got = expected;
        cpu::TileDots op{rows.data(), row_stride, n_rows,          tiles.data(),
                         n_tiles,     d,          expected.data(), width};
        scalar().tile_dots(op);
        op.out = got.data();
        table().tile_dots(op);
        const std::string what = fmt::format("{} rows, {} tiles of {}", n_rows, n_tiles, d);
        expect_close(expected, want, test::kKernelTolerance, what);
        expect_same_bits(expected, got, what);
      }
    }
  }
}

TEST_P(AttentionTables, Softmax) {
  Random random(2);
  for (const int n : {1, 2, 15, 16, 17, 100, 128}) {
    const std::vector<float> x = random.floats(128, 40);
    std::vector<float> expected = x, got = x;
    const SoftmaxSum a = scalar().softmax(expected.data(), n, 0.3f),
                     b = table().softmax(got.data(), n, 0.3f);
    expect_same_bits(expected, got, fmt::format("{} keys", n));
    EXPECT_EQ(a.max, b.max);
    EXPECT_EQ(a.sum, b.sum);
    double sum = 0;
    for (int t = 0; t < n; ++t) {
      EXPECT_LE(x[t] * 0.3f, a.max);
      sum += std::exp(static_cast<double>(x[t] * 0.3f) - a.max);
    }
    EXPECT_NEAR(a.sum, sum, 1e-6 * sum);
    for (int t = n; t < (n + 15) / 16 * 16; ++t) EXPECT_EQ(got[t], 0.0f);
    for (int t = (n + 15) / 16 * 16; t < 128; ++t) EXPECT_EQ(got[t], x[t]);
  }
}

TEST_P(AttentionTables, SoftmaxOfScoresThatAreNotFinite) {
  std::vector<float> x{1, -kInf, 2, 3};
  x.resize(16);
  EXPECT_NEAR(table().softmax(x.data(), 4, 1).sum, 1 + std::exp(-1.0) + std::exp(-2.0), 1e-6);
  EXPECT_EQ(x[1], 0.0f);
  for (const float bad : {kInf, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> y{1, bad, 2, 3};
    y.resize(16);
    EXPECT_TRUE(std::isnan(table().softmax(y.data(), 4, 1).sum)) << bad;
  }
}

TEST_P(AttentionTables, WeightedRows) {
  Random random(3);
  for (const int d : {1, 20, 64, 100, 256}) {
    for (const int n_queries : {1, 3, 4, 9}) {
      for (const int n_rows : {0, 1, 50}) {
        const std::vector<float> weights = random.floats(n_queries * 60),
                                 rows = random.floats(n_rows * (d + 5)),
                                 start = random.floats(n_queries * (d + 1));
        std::vector<float> expected = start, got = start;
        std::vector<double> want(start.begin(), start.end());
        for (int j = 0; j < n_queries; ++j) {
          for (int t = 0; t < n_rows; ++t) {
            for (int c = 0; c < d; ++c)
              want[j * (d + 1) + c] +=
                  static_cast<double>(weights[j * 60 + t]) * rows[t * (d + 5) + c];
          }
        }
        cpu::WeightedRows op{weights.data(), 60, n_queries,       rows.data(), d + 5,
                             n_rows,         d,  expected.data(), d + 1};
        scalar().weighted_rows(op);
        op.out = got.data();
        table().weighted_rows(op);
        const std::string what = fmt::format("{} queries, {} rows of {}", n_queries, n_rows, d);
        expect_close(expected, want, test::kKernelTolerance, what);
        expect_same_bits(expected, got, what);
      }
    }
  }
}

TEST_P(AttentionTables, MergeIsTheSumOverBoth) {
  Random random(4);
  for (const std::int64_t n : {1, 16, 77}) {
    for (const float other_max : {-3.0f, 0.5f, 9.0f}) {
      const std::vector<float> x = random.floats(n), y = random.floats(n);
      std::vector<float> expected = x, got = x;
      SoftmaxSum a{0.5f, 2}, b = a;
      const SoftmaxSum other{other_max, 3};
      scalar().merge(a, expected.data(), other, y.data(), n);
      table().merge(b, got.data(), other, y.data(), n);
      expect_same_bits(expected, got, "values");
      EXPECT_EQ(a.max, std::max(0.5f, other_max));
      EXPECT_EQ(a.max, b.max);
      EXPECT_EQ(a.sum, b.sum);
      const double p = std::exp(0.5 - a.max), q = std::exp(static_cast<double>(other_max) - a.max);
      EXPECT_NEAR(a.sum, 2 * p + 3 * q, 1e-6 * a.sum);
      std::vector<double> want;
      for (std::int64_t c = 0; c < n; ++c) want.push_back(x[c] * p + y[c] * q);
      expect_close(expected, want, test::kKernelTolerance, "values");
    }
  }
}

TEST_P(AttentionTables, MergeWithNothing) {
  std::vector<float> values{1, 2, 3};
  const std::vector<float> other{4, 5, 6};
  SoftmaxSum sum;
  table().merge(sum, values.data(), SoftmaxSum{}, other.data(), 3);  // nothing to nothing
  EXPECT_EQ(sum.max, -kInf);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
  std::vector<float> zeros(3);
  table().merge(sum, zeros.data(), SoftmaxSum{-5, 2}, other.data(), 3);  // the first part
  EXPECT_EQ(zeros, other);
  EXPECT_EQ(sum.max, -5.0f);
  EXPECT_EQ(sum.sum, 2.0f);
}

TEST_P(AttentionTables, Activations) {
  const cpu::KernelTable& kernels = cpu::select_kernels(GetParam());
  std::vector<float> x;
  for (double at = -120; at <= 120; at += 0.037) x.push_back(static_cast<float>(at));
  for (const std::size_t n : {x.size(), std::size_t{1}, std::size_t{21}}) {
    std::vector<float> expected(n + 1, -7),
        got = expected, in_place(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n));
    const auto count = static_cast<std::int64_t>(n);
    cpu::scalar_kernels().sigmoid_row(x.data(), expected.data(), count);
    kernels.sigmoid_row(x.data(), got.data(), count);
    expect_same_bits(expected, got, "sigmoid");
    for (std::size_t i = 0; i < n; ++i) {
      const double s = 1 / (1 + std::exp(-static_cast<double>(x[i])));
      ASSERT_NEAR(got[i], s, 3e-7 * s + 2e-38) << x[i];
    }
    cpu::scalar_kernels().silu_row(x.data(), expected.data(), count);
    kernels.silu_row(in_place.data(), in_place.data(), count);
    expect_same_bits(std::span(expected).first(n), in_place, "silu");
    for (std::size_t i = 0; i < n; ++i) {
      const double s = x[i] / (1 + std::exp(-static_cast<double>(x[i])));
      ASSERT_NEAR(in_place[i], s, 4e-7 * std::abs(s) + 2e-36) << x[i];
    }
  }
  std::vector<float> odd{kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), 0.0f};
  kernels.sigmoid_row(odd.data(), odd.data(), 4);
  EXPECT_EQ(odd[0], 1.0f);
  EXPECT_EQ(odd[1], 0.0f);
  EXPECT_TRUE(std::isnan(odd[2]));
  EXPECT_EQ(odd[3], 0.5f);
}

INSTANTIATE_TEST_SUITE_P(Isa, AttentionTables, testing::ValuesIn(test::supported_isas()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace moeflux
