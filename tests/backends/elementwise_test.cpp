// Norms, rotation, sums: against double.
#include <cmath>
#include <span>

#include <gtest/gtest.h>

#include "backends/cpu_backends.h"
#include "support/operands.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_close;
using test::operand;
using test::Random;

TEST(RmsNorm, AgainstDouble) {
  Random random(1);
  for (const std::int64_t d : {1, 3, 16, 17, 96, 1000}) {
    for (const std::int64_t n : {1, 2, 40}) {
      for (const double size : {1e-4, 1.0, 300.0}) {  // the smallest makes eps matter
        const std::int64_t x_stride = d + 7, out_stride = d + 2;
        const std::vector<float> x = random.floats(n * x_stride, size),
                                 weight = random.floats(d, 2);
        const float eps = 1e-6f;
        std::vector<double> want(static_cast<std::size_t>(n * out_stride), -7);
        for (std::int64_t i = 0; i < n; ++i) {
          double square = 0;
          for (std::int64_t c = 0; c < d; ++c)
            square += std::pow(static_cast<double>(x[i * x_stride + c]), 2);
          const double inverse = 1 / std::sqrt(square / static_cast<double>(d) + eps);
          for (std::int64_t c = 0; c < d; ++c)
            want[i * out_stride + c] = x[i * x_stride + c] * inverse * weight[c];
        }
        test::for_each_backend([&](Backend& backend, const std::string& what) {
          std::vector<float> out(want.size(), -7);
          backend.rms_norm({.x = operand(x.data(), n, d, x_stride),
                            .weight = operand(weight),
                            .eps = eps,
                            .out = operand(out.data(), n, d, out_stride)});
          expect_close(out, want, test::kKernelTolerance, what);
        });
      }
    }
  }
}

TEST(RmsNorm, InPlaceAndZero) {
  test::for_each_backend([](Backend& backend, const std::string&) {
    std::vector<float> x{3, 4, 0, 0};
    const std::vector<float> weight{1, 2};
    backend.rms_norm(
        {.x = operand(x, 2), .weight = operand(weight), .eps = 1e-6f, .out = operand(x, 2)});
    EXPECT_NEAR(x[0], 3 / std::sqrt(12.5), 1e-6);
    EXPECT_NEAR(x[1], 8 / std::sqrt(12.5), 1e-6);
    EXPECT_EQ(x[2], 0.0f);  // a zero vector stays zero
    EXPECT_EQ(x[3], 0.0f);
  });
}

TEST(RmsNorm, WithoutWeights) {
  Random random(6);
  const std::vector<float> x = random.floats(3 * 21), ones(21, 1.0f);
  test::for_each_backend([&](Backend& backend, const std::string&) {
    std::vector<float> want(x.size()), got(x.size());
    RmsNormOp op{
        .x = operand(x, 3), .weight = operand(ones), .eps = 1e-6f, .out = operand(want, 3)};
    backend.rms_norm(op);
    op.weight = {};
    op.out = operand(got, 3);
    backend.rms_norm(op);
    EXPECT_EQ(got, want);
  });
}

TEST(Add, AndScale) {
  Random random(7);
  const std::vector<float> x = random.floats(5 * 9), y = random.floats(5 * 9);
  const std::vector<float> scale{0.625f};
  test::for_each_backend([&](Backend& backend, const std::string&) {
    std::vector<float> sum = y, scaled = y;
    backend.add({.x = operand(x, 5), .y = operand(sum, 5)});
    backend.add({.x = operand(x, 5), .y = operand(scaled, 5), .scale = operand(scale)});
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(sum[i], y[i] + x[i]);
      EXPECT_EQ(scaled[i], sum[i] * 0.625f);
    }
  });
}

TEST(Softcap, AgainstDouble) {
  Random random(8);
  std::vector<float> x = random.floats(4 * 33, 60);
  x[0] = 0;
  x[1] = 1e-7f;
  x[2] = 1e30f;
  x[3] = -1e30f;
  for (const float cap : {0.5f, 30.0f}) {
    std::vector<double> want;
    for (const float value : x) want.push_back(cap * std::tanh(static_cast<double>(value) / cap));
    test::for_each_backend([&](Backend& backend, const std::string& what) {
      std::vector<float> y = x;
      backend.softcap({.x = operand(y, 4), .cap = cap});
      expect_close(y, want, test::kKernelTolerance, what);
      EXPECT_FLOAT_EQ(y[1], 1e-7f);
    });
  }
}

TEST(Embed, Scale) {
  const std::vector<float> table{1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> tokens{2, 0};
  const WeightView view{
      .format = {}, .rows = 3, .cols = 2, .data = std::as_bytes(std::span(table)).data()};
  test::for_each_backend([&](Backend& backend, const std::string&) {
    std::vector<float> out(4);
    backend.embed(
        {.table = operand(view), .tokens = operand(tokens), .scale = 1.5f, .out = operand(out, 2)});
    EXPECT_EQ(out, (std::vector<float>{7.5f, 9, 1.5f, 3}));
  });
}

// The angle is the f32 product of position and frequency, as in the reference implementation; from
// there on everything is compared with double.
TEST(Rope, BothPairingsAgainstDouble) {
  Random random(3);
  for (const bool interleaved : {false, true}) {
    for (const std::int64_t first : {0, 1, 4095, 100000}) {
      const int n_rot = 12, d_head = 20, n_heads = 3;
      RopeSpec rope = make_rope(1e4, n_rot, interleaved);
      rope.magnitude = 1.25f;
      const std::int64_t head_stride = d_head + 1, token_stride = n_heads * head_stride + 4, n = 18;
      const std::vector<float> x = random.floats(n * token_stride);
      std::vector<double> want(x.begin(), x.end());
      for (std::int64_t i = 0; i < n; ++i) {
        for (int h = 0; h < n_heads; ++h) {
          for (int p = 0; p < n_rot / 2; ++p) {
            const std::int64_t base = i * token_stride + h * head_stride;
            const std::int64_t a = base + (interleaved ? 2 * p : p),
                               b = base + (interleaved ? 2 * p + 1 : p + n_rot / 2);
            const double angle = static_cast<float>(first + i) * rope.inv_freq[p];
            want[a] = 1.25 * (x[a] * std::cos(angle) - x[b] * std::sin(angle));
            want[b] = 1.25 * (x[b] * std::cos(angle) + x[a] * std::sin(angle));
          }
        }
      }
      test::for_each_backend([&](Backend& backend, const std::string& what) {
        std::vector<float> y = x;
        backend.rope({.rope = &rope,
                      .x = operand(y, n),
                      .n_heads = n_heads,
                      .head_stride = head_stride,
                      .positions = test::positions(first, n)});
        expect_close(y, want, test::kKernelTolerance, what);
      });
    }
  }
}

// How far the f32 angle is from the exact one: half an ulp of the frequency and of the product,
// each times the position.
TEST(Rope, TheErrorOfTheAngleIsBounded) {
  const RopeSpec rope = make_rope(1e4, 64, false);
  test::for_each_backend([&](Backend& backend, const std::string&) {
    for (const std::int64_t position : {1, 1000, 100000}) {
      std::vector<float> x(64);
      for (int p = 0; p < 32; ++p) x[p] = 1;
      backend.rope({&rope, operand(x), 1, 64, test::positions(position, 1)});
      for (int p = 0; p < 32; ++p) {
        const double angle = static_cast<double>(position) * std::pow(1e4, -p / 32.0);
        EXPECT_NEAR(x[p], std::cos(angle), 1.3e-7 * angle + 2e-7) << position << " " << p;
        EXPECT_NEAR(x[p + 32], std::sin(angle), 1.3e-7 * angle + 2e-7) << position << " " << p;
      }
    }
  });
}

TEST(Rope, KeepsLengths) {
  Random random(4);
  const RopeSpec rope = make_rope(1e6, 32, true);
  const std::vector<float> x = random.floats(32 * 50);
  test::for_each_backend([&](Backend& backend, const std::string&) {
    std::vector<float> y = x;
    backend.rope({&rope, operand(y, 50), 1, 32, test::positions(77777, 50)});
    for (std::size_t pair = 0; pair < x.size(); pair += 2) {
      EXPECT_NEAR(std::hypot(y[pair], y[pair + 1]), std::hypot(x[pair], x[pair + 1]), 1e-6);
    }
  });
}

TEST(Combine, AgainstDouble) {
  Random random(5);
  enum Shared { kNone, kPlain, kGated };
  for (const Shared kind : {kNone, kPlain, kGated}) {
    for (const int top_k : {1, 2, 8}) {
      const std::int64_t n = 11, d = 37;
      const std::vector<float> experts = random.floats(n * top_k * d),
                               weights = random.floats(n * top_k);
      const std::vector<float> shared = random.floats(n * d), gate = random.floats(n, 5);
      std::vector<double> want(static_cast<std::size_t>(n * d));
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t c = 0; c < d; ++c) {
          double sum = 0;
          for (int s = 0; s < top_k; ++s) {
            sum += static_cast<double>(weights[i * top_k + s]) * experts[(i * top_k + s) * d + c];
          }
          if (kind == kPlain) sum += shared[i * d + c];
          if (kind == kGated)
            sum += shared[i * d + c] / (1 + std::exp(-static_cast<double>(gate[i])));
          want[i * d + c] = sum;
        }
      }
      test::for_each_backend([&](Backend& backend, const std::string& what) {
        std::vector<float> out(want.size(), -7);
        backend.combine({.experts = operand(experts, n * top_k),
                         .weights = operand(weights, n),
                         .shared = kind == kNone ? View{} : operand(shared, n),
                         .shared_gate = kind == kGated ? operand(gate, n) : View{},
                         .out = operand(out, n)});
        expect_close(out, want, test::kKernelTolerance, what);
      });
    }
  }
}

TEST(Clamp, CutsOffAtBothEnds) {
  test::for_each_backend([](Backend& backend, const std::string& what) {
    std::vector<float> x{-3, -2, 0.5f, 9, 2, -2.5f, 1, 9};  // rows of 3, 4 apart
    backend.clamp({.x = operand(x.data(), 2, 3, 4), .limit = 2});
    EXPECT_EQ(x, (std::vector<float>{-2, -2, 0.5f, 9, 2, -2, 1, 9})) << what;
  });
}

TEST(Add, IsExact) {
  Random random(2);
  test::for_each_backend([&](Backend& backend, const std::string&) {
    for (const std::int64_t n : {0, 1, 100, 50000}) {
      const std::vector<float> x = random.floats(n), before = random.floats(n);
      std::vector<float> y = before;
      backend.add({.x = operand(x), .y = operand(y)});
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], before[i] + x[i]);
    }
  });
}

}  // namespace
}  // namespace moeflux
