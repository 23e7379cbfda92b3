// Products with stored weights, in every format, against double.
#include <cmath>

#include <gtest/gtest.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu_backends.h"
#include "backends/random_weight.h"
#include "support/operands.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_close;
using test::operand;
using test::Random;
using test::RandomWeight;

class Formats : public testing::TestWithParam<WeightFormat> {
 protected:
  RandomWeight weight(Random& random, std::int64_t rows, std::int64_t cols) {
    return {random, GetParam(), rows, test::fitting_cols(GetParam(), cols)};
  }
};

TEST_P(Formats, Matmul) {
  Random random(1);
  const std::int64_t shapes[][3] = {{1, 1, 1},   {3, 3, 2},    {5, 17, 1},
                                    {17, 96, 5}, {40, 129, 9}, {7, 300, 18}};
  for (const auto& shape : shapes) {
    const std::int64_t rows = shape[0], n = shape[2];
    const RandomWeight w = weight(random, rows, shape[1]);
    const std::int64_t x_stride = w.cols() + 5, y_stride = rows + 3;
    const std::vector<float> x = random.floats(n * x_stride);
    std::vector<double> want(static_cast<std::size_t>(n * y_stride), -7);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::int64_t c = 0; c < w.cols(); ++c) sum += w.at(r, c) * x[i * x_stride + c];
        want[i * y_stride + r] = sum;
      }
    }
    test::for_each_backend([&](Backend& backend, const std::string& what) {
      std::vector<float> y(want.size(), -7);  // what lies between the rows must stay
      backend.matmul({.weight = operand(w.view()),
                      .x = operand(x.data(), n, w.cols(), x_stride),
                      .y = operand(y.data(), n, rows, y_stride)});
      expect_close(y, want, test::kKernelTolerance, what);
    });
  }
}

TEST_P(Formats, Embed) {
  Random random(2);
  const RandomWeight table = weight(random, 23, 41);
  const auto tokens = random.tokens(30, 23);
  std::vector<double> want;
  for (const std::int32_t token : tokens) {
    for (std::int64_t c = 0; c < table.cols(); ++c) want.push_back(table.at(token, c));
  }
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    std::vector<float> out(want.size());
    backend.embed({.table = operand(table.view()),
                   .tokens = operand(tokens),
                   .out = operand(out, std::ssize(tokens))});
    expect_close(out, want, 3e-7, what);
  });
}

// Rows [row0, row0 + rows) of the head_rows of each head, used as they are and transposed.
TEST_P(Formats, HeadMatmul) {
  Random random(3);
  constexpr int kHeads = 3;
  for (const bool transpose : {false, true}) {
    for (const std::int64_t n : {1, 6}) {
      const std::int64_t head_rows = 11, row0 = 4, rows = 7;
      const RandomWeight w = weight(random, kHeads * head_rows, 19);
      const std::int64_t n_in = transpose ? rows : w.cols(), n_out = transpose ? w.cols() : rows;
      const std::int64_t x_head = n_in + 2, x_token = kHeads * x_head + 1, y_head = n_out + 3,
                         y_token = kHeads * y_head + 2;
      const std::vector<float> x = random.floats(n * x_token);
      std::vector<double> want(static_cast<std::size_t>(n * y_token), -7);
      for (std::int64_t i = 0; i < n; ++i) {
        for (int h = 0; h < kHeads; ++h) {
          for (std::int64_t o = 0; o < n_out; ++o) {
            double sum = 0;
            for (std::int64_t k = 0; k < n_in; ++k) {
              const std::int64_t row = h * head_rows + row0 + (transpose ? k : o);
              sum += w.at(row, transpose ? o : k) * x[i * x_token + h * x_head + k];
            }
            want[i * y_token + h * y_head + o] = sum;
          }
        }
      }
      test::for_each_backend([&](Backend& backend, const std::string& what) {
        std::vector<float> y(want.size(), -7);
        backend.head_matmul({.matrix = {operand(w.view()), head_rows, row0, rows, transpose},
                             .n_heads = kHeads,
                             .x = operand(x, n),
                             .x_head_stride = x_head,
                             .y = operand(y, n),
                             .y_head_stride = y_head});
        expect_close(y, want, test::kKernelTolerance, what);
      });
    }
  }
}

// Rows of several panels and activations of several blocks are dots in the order of the reference.
TEST_P(Formats, ExactMatmulIsDots) {
  Random random(6);
  const RandomWeight w = weight(random, 29, 6000);
  const cpu::KernelTable& scalar = cpu::scalar_kernels();
  constexpr std::int64_t kMost = 30;
  const std::int64_t cols = w.cols();
  const std::vector<float> x = random.floats(kMost * cols);
  std::vector<float> row(static_cast<std::size_t>(cols)), want(29 * kMost);
  for (std::int64_t r = 0; r < 29; ++r) {
    scalar.decode_row(w.view(), r, row.data());
    for (std::int64_t i = 0; i < kMost; ++i)
      want[i * 29 + r] = scalar.dot(row.data(), x.data() + i * cols, cols);
  }
  for (const std::string& isa : test::supported_isas()) {
    const auto backend = test::cpu_backend(isa, 2);
    for (const std::int64_t n : {4, 5, 8, 9, 30}) {
      std::vector<float> y(static_cast<std::size_t>(n * 29));
      backend->matmul(
          {.weight = operand(w.view()), .x = operand(x.data(), n, cols), .y = operand(y, n)});
      test::expect_same_bits(std::span(want).first(y.size()), y, isa + std::to_string(n));
    }
  }
}

// Transposed, each output is a sum over rows in order.
TEST_P(Formats, TransposedHeadMatmulIsSumsInOrder) {
  Random random(7);
  const std::int64_t rows = 70, n = 5;
  const RandomWeight w = weight(random, rows, 100);
  const std::int64_t cols = w.cols();
  const std::vector<float> x = random.floats(n * rows);
  std::vector<float> row(static_cast<std::size_t>(cols)), want(static_cast<std::size_t>(n * cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    cpu::scalar_kernels().decode_row(w.view(), r, row.data());
    for (std::int64_t i = 0; i < n; ++i)
      cpu::scalar_kernels().axpy(x[i * rows + r], row.data(), want.data() + i * cols, cols);
  }
  for (const std::string& isa : test::supported_isas()) {
    std::vector<float> y(want.size(), -7);
    test::cpu_backend(isa)->head_matmul(
        {{operand(w.view()), rows, 0, rows, true}, 1, operand(x, n), rows, operand(y, n), cols});
    test::expect_same_bits(want, y, isa);
  }
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

std::vector<double> reference_ffn(const RandomWeight& gate, const RandomWeight& up,
                                  const RandomWeight& down, const float* x) {
  std::vector<double> y(static_cast<std::size_t>(down.rows()));
  for (std::int64_t f = 0; f < gate.rows(); ++f) {
    double g = 0, u = 0;
    for (std::int64_t c = 0; c < gate.cols(); ++c) {
      g += gate.at(f, c) * x[c];
      u += up.at(f, c) * x[c];
    }
    for (std::int64_t r = 0; r < down.rows(); ++r) y[r] += down.at(r, f) * silu(g) * u;
  }
  return y;
}

TEST_P(Formats, FfnWithChosenRows) {
  Random random(4);
  for (const std::int64_t size : {1, 20, 70}) {
    const std::int64_t d_model = test::fitting_cols(GetParam(), size);
    const std::int64_t d_ff = test::fitting_cols(GetParam(), size + 13);
    const RandomWeight gate = weight(random, d_ff, d_model), up = weight(random, d_ff, d_model),
                       down = weight(random, d_model, d_ff);
    const std::vector<float> x = random.floats(6 * d_model);
    const std::vector<std::int32_t> in{4, 0, 4}, out{7, 2, 3};
    std::vector<double> want(static_cast<std::size_t>(8 * d_model), -7);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto row = reference_ffn(gate, up, down, x.data() + in[i] * d_model);
      std::copy(row.begin(), row.end(), want.begin() + out[i] * d_model);
    }
    test::for_each_backend([&](Backend& backend, const std::string& what) {
      std::vector<float> y(want.size(), -7), hidden(static_cast<std::size_t>(3 * d_ff));
      FfnOp op{.gate = operand(gate.view()),
               .up = operand(up.view()),
               .down = operand(down.view()),
               .x = operand(x, 6),
               .rows_in = operand(in),
               .rows_out = operand(out),
               .hidden = operand(hidden, 3),
               .y = operand(y, 8)};
      backend.ffn(op);
      expect_close(y, want, 1e-5, what);  // two products in a row

      // Without lists: rows 0, 1, 2.
      std::vector<float> plain(static_cast<std::size_t>(3 * d_model));
      op.rows_in = op.rows_out = {};
      op.y = operand(plain, 3);
      backend.ffn(op);
      for (std::int64_t i = 0; i < 3; ++i) {
        expect_close(std::span(plain).subspan(static_cast<std::size_t>(i * d_model),
                                              static_cast<std::size_t>(d_model)),
                     reference_ffn(gate, up, down, x.data() + i * d_model), 1e-5, what);
      }
    });
  }
}

// Each list may be left out alone.
TEST(Ffn, OneListOfRows) {
  Random random(5);
  const WeightFormat f32{.kind = WeightKind::F32};
  const RandomWeight gate(random, f32, 9, 6), up(random, f32, 9, 6), down(random, f32, 6, 9);
  const std::vector<float> x = random.floats(4 * 6);
  const std::vector<std::int32_t> rows{3, 1};
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    for (const bool lists_in : {true, false}) {
      std::vector<float> y(4 * 6, -7), hidden(2 * 9);
      backend.ffn({.gate = operand(gate.view()),
                   .up = operand(up.view()),
                   .down = operand(down.view()),
                   .x = operand(x, 4),
                   .rows_in = lists_in ? operand(rows) : View{},
                   .rows_out = lists_in ? View{} : operand(rows),
                   .hidden = operand(hidden, 2),
                   .y = operand(y, 4)});
      for (int i = 0; i < 2; ++i) {
        const int from = lists_in ? rows[i] : i, to = lists_in ? i : rows[i];
        expect_close(std::span(y).subspan(to * 6, 6),
                     reference_ffn(gate, up, down, x.data() + from * 6), 1e-5, what);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Weights, Formats, testing::ValuesIn(test::all_formats()),
                         [](const auto& test) { return test::format_name(test.param); });

}  // namespace
}  // namespace moeflux
