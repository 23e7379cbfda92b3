// Products of few rows on the emulated GPU, in all formats, against values in double precision.
#include <gtest/gtest.h>

#include "backends/cuda_support.h"
#include "backends/random_weight.h"
#include "support/random.h"

namespace moeflux {
namespace {

using test::CudaAndCpu;
using test::RandomWeight;

std::vector<double> product(const RandomWeight& w, const std::vector<float>& x, std::int64_t n) {
  std::vector<double> y;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t r = 0; r < w.rows(); ++r) {
      double sum = 0;
      for (std::int64_t c = 0; c < w.cols(); ++c)
        sum += w.at(r, c) * x[static_cast<std::size_t>(i * w.cols() + c)];
      y.push_back(sum);
    }
  }
  return y;
}

double difference(const std::vector<float>& got, const std::vector<double>& wanted) {
  double off = 0, all = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    off += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    all += wanted[i] * wanted[i];
  }
  return std::sqrt(off / all);
}

class CudaFewRows : public testing::TestWithParam<WeightFormat> {};

TEST_P(CudaFewRows, ProductsAreExactOrClose) {
  test::Random random(7);
  for (const auto& [rows, columns, n] : {std::tuple(37, 64, 1), std::tuple(9, 1152, 1),
                                         std::tuple(40, 320, 3), std::tuple(5, 96, 8)}) {
    const std::int64_t cols = test::fitting_cols(GetParam(), columns);
    const RandomWeight w(random, GetParam(), rows, cols);
    const auto values = random.floats(n * cols);
    const auto wanted = product(w, values, n);
    for (const auto& [precision, bound] :
         {std::pair(Precision::Exact, 3e-6), std::pair(Precision::Fine, 2e-4)}) {
      for (const bool is_aligned : {true, false}) {
        CudaAndCpu both(precision);
        const auto weight = both.weight(w.view(), is_aligned);
        const auto x = both.floats(n, cols, values);
        const auto y = both.results(n, rows);
        both.gpu->matmul({.weight = weight.gpu, .x = x.gpu, .y = y.gpu});
        EXPECT_LT(difference(CudaAndCpu::read(*both.gpu, y.gpu), wanted), bound)
            << rows << " x " << cols << ", " << n << (is_aligned ? "" : ", odd addresses");
      }
    }
  }
}

TEST_P(CudaFewRows, FeedForwards) {
  test::Random random(8);
  const std::int64_t d = test::fitting_cols(GetParam(), 96),
                     d_ff = test::fitting_cols(GetParam(), 160);
  const RandomWeight gate(random, GetParam(), d_ff, d), up(random, GetParam(), d_ff, d),
      down(random, GetParam(), d, d_ff);
  for (const std::int64_t n : {1, 3}) {
    CudaAndCpu both;
    const auto g = both.weight(gate.view()), u = both.weight(up.view()),
               o = both.weight(down.view());
    const auto x = both.floats(n, d, random.floats(n * d));
    const auto gate_bias = both.floats(1, d_ff, random.floats(d_ff));
    const auto down_bias = both.floats(1, d, random.floats(d));
    for (const FfnActivation& activation :
         {FfnActivation{}, FfnActivation{FfnActivation::Kind::Gelu},
          FfnActivation{FfnActivation::Kind::ClampedSwiglu, 1.7f, 0.5f}}) {
      const auto hidden = both.results(n, d_ff), y = both.results(n, d);
      const auto run = [&](Backend& backend, auto pick) {
        backend.ffn({.gate = pick(g),
                     .up = pick(u),
                     .down = pick(o),
                     .gate_bias = pick(gate_bias),
                     .up_bias = pick(gate_bias),
                     .down_bias = pick(down_bias),
                     .activation = activation,
                     .x = pick(x),
                     .hidden = pick(hidden),
                     .y = pick(y)});
      };
      run(*both.gpu, [](const auto& pair) { return pair.gpu; });
      run(*both.cpu, [](const auto& pair) { return pair.cpu; });
      EXPECT_LT(both.difference(y), 1e-5) << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaFewRows, testing::ValuesIn(test::cuda_formats()),
                         [](const auto& format) { return test::format_name(format.param); });

}  // namespace
}  // namespace moeflux
