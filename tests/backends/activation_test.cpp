// Feed-forwards with biases and each activation, and products with biases: against double, at every
// precision.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu_backends.h"
#include "backends/random_weight.h"
#include "support/operands.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_close;
using test::expect_same_bits;
using test::operand;
using test::Random;
using test::RandomWeight;

constexpr Precision kPrecisions[] = {Precision::Exact, Precision::Fine, Precision::Fast};
constexpr WeightFormat kF32{.kind = WeightKind::F32};
constexpr WeightFormat kBf16{.kind = WeightKind::BF16};
constexpr WeightFormat kFourBits{
    .kind = WeightKind::Affine, .bits = 4, .group = 32, .scale_dtype = DType::BF16};
constexpr WeightFormat kEightBits{
    .kind = WeightKind::Affine, .bits = 8, .group = 64, .scale_dtype = DType::F16};

const FfnActivation kSilu{};
const FfnActivation kGelu{.kind = FfnActivation::Kind::Gelu};
const FfnActivation kClamped{
    .kind = FfnActivation::Kind::ClampedSwiglu, .alpha = 1.702f, .limit = 7.0f};

// As a backend wants it.
Weight laid_out(const Backend& backend, const RandomWeight& weight) {
  const bool tiles = backend.layout_for(weight.view().format, WeightUse::Product).is_interleaved;
  return operand(tiles ? weight.interleaved() : weight.view());
}

double activated(const FfnActivation& activation, double gate, double up) {
  switch (activation.kind) {
    case FfnActivation::Kind::Silu:
      return gate / (1 + std::exp(-gate)) * up;
    case FfnActivation::Kind::Gelu: {
      const double inner = std::sqrt(2 / std::acos(-1.0)) * (gate + 0.044715 * std::pow(gate, 3));
      return 0.5 * gate * (1 + std::tanh(inner)) * up;
    }
    case FfnActivation::Kind::ClampedSwiglu: {
      const double limit = activation.limit, g = std::min(gate, limit),
                   u = std::max(-limit, std::min(up, limit));
      return g / (1 + std::exp(-activation.alpha * g)) * (u + 1);
    }
  }
  return 0;
}

struct Ffn {
  RandomWeight gate, up, down;
  std::vector<float> gate_bias, up_bias, down_bias;

  struct Formats {
    WeightFormat gate, up, down;
  };
  // Large biases: gates and ups on both sides of the limit.
  Ffn(Random& random, const Formats& formats, std::int64_t d_ff, std::int64_t d)
      : gate(random, formats.gate, d_ff, d),
        up(random, formats.up, d_ff, d),
        down(random, formats.down, d, d_ff),
        gate_bias(random.floats(d_ff, 10)),
        up_bias(random.floats(d_ff, 10)),
        down_bias(random.floats(d, 10)) {}

  std::int64_t d() const { return gate.cols(); }
  std::int64_t d_ff() const { return gate.rows(); }

  std::vector<double> reference(const FfnActivation& activation, bool biased,
                                const float* x) const {
    std::vector<double> y(static_cast<std::size_t>(d()));
    for (std::int64_t r = 0; r < d(); ++r) y[r] = biased ? down_bias[r] : 0;
    for (std::int64_t f = 0; f < d_ff(); ++f) {
      double g = biased ? gate_bias[f] : 0, u = biased ? up_bias[f] : 0;
      for (std::int64_t c = 0; c < d(); ++c) {
        g += gate.at(f, c) * x[c];
        u += up.at(f, c) * x[c];
      }
      const double hidden = activated(activation, g, u);
      for (std::int64_t r = 0; r < d(); ++r) y[r] += down.at(r, f) * hidden;
    }
    return y;
  }

  FfnOp op(const Backend& backend, const FfnActivation& activation, bool biased) const {
    return {.gate = laid_out(backend, gate),
            .up = laid_out(backend, up),
            .down = laid_out(backend, down),
            .gate_bias = biased ? operand(gate_bias) : View{},
            .up_bias = biased ? operand(up_bias) : View{},
            .down_bias = biased ? operand(down_bias) : View{},
            .activation = activation,
            .x = {},
            .hidden = {},
            .y = {}};
  }
};

double ffn_tolerance(Precision precision) {
  return precision == Precision::Exact ? 1e-5 : precision == Precision::Fine ? 5e-4 : 5e-2;
}

// Rows x[3 i mod n] into row n - 1 - i of n + 1, and without lists row i into row i.
void check(const Ffn& ffn, std::int64_t n, const std::vector<float>& x,
           const FfnActivation& activation, bool biased) {
  const std::int64_t d = ffn.d();
  std::vector<std::vector<double>> rows;
  for (std::int64_t i = 0; i < n; ++i)
    rows.push_back(ffn.reference(activation, biased, x.data() + i * d));
  std::vector<std::int32_t> in, out;
  std::vector<double> want, scattered(static_cast<std::size_t>((n + 1) * d), -7);
  for (std::int64_t i = 0; i < n; ++i) {
    in.push_back(static_cast<std::int32_t>(3 * i % n));
    out.push_back(static_cast<std::int32_t>(n - 1 - i));
    want.insert(want.end(), rows[i].begin(), rows[i].end());
    std::copy(rows[in[i]].begin(), rows[in[i]].end(), scattered.begin() + out[i] * d);
  }
  for (const Precision precision : kPrecisions) {
    std::vector<float> first;
    for (const std::string& isa : test::supported_isas()) {
      const auto backend = make_backend({.isa = isa, .n_threads = 2, .precision = precision});
      const std::string what = fmt::format("{} {}, n {}, {}", isa, precision_name(precision), n,
                                           static_cast<int>(activation.kind));
      std::vector<float> hidden(static_cast<std::size_t>(n * ffn.d_ff())),
          y(static_cast<std::size_t>(n * d)), listed(scattered.size(), -7);
      FfnOp op = ffn.op(*backend, activation, biased);
      op.x = operand(x, n);
      op.hidden = operand(hidden, n);
      op.y = operand(y, n);
      backend->ffn(op);
      expect_close(y, want, ffn_tolerance(precision), what);
      if (first.empty()) first = y;
      expect_same_bits(first, y, what);

      op.rows_in = operand(in);
      op.rows_out = operand(out);
      op.y = operand(listed, n + 1);
      backend->ffn(op);
      expect_close(listed, scattered, ffn_tolerance(precision), what + " with lists");
    }
  }
}

// All matrices alike, and mixed ones, which are computed in another way.
TEST(Activations, AgainstDouble) {
  Random random(1);
  for (const auto& formats : {Ffn::Formats{kF32, kF32, kF32}, Ffn::Formats{kBf16, kBf16, kBf16},
                              Ffn::Formats{kFourBits, kFourBits, kFourBits},
                              Ffn::Formats{kFourBits, kEightBits, kBf16}}) {
    const Ffn ffn(random, formats, 128, 64);
    for (const std::int64_t n : {1, 5}) {
      const std::vector<float> x = random.floats(n * 64, 2);
      for (const FfnActivation& activation : {kSilu, kGelu, kClamped}) {
        for (const bool biased : {false, true}) check(ffn, n, x, activation, biased);
      }
    }
  }
}

// More rows than are taken at once.
TEST(Activations, ManyRows) {
  Random random(2);
  const Ffn alike(random, {kFourBits, kFourBits, kFourBits}, 64, 64);
  const Ffn mixed(random, {kFourBits, kEightBits, kBf16}, 64, 64);
  const std::vector<float> x = random.floats(std::int64_t{600} * 64, 2);
  check(alike, 600, x, kClamped, true);
  check(mixed, 600, x, kClamped, true);
}

// Each bias may be there alone.
TEST(Activations, OneBias) {
  Random random(3);
  const Ffn all(random, {kFourBits, kFourBits, kFourBits}, 96, 64);
  const std::vector<float> x = random.floats(std::int64_t{3} * 64, 2);
  for (const int which : {0, 1, 2}) {
    Ffn one = all;
    if (which != 0) std::fill(one.gate_bias.begin(), one.gate_bias.end(), 0.0f);
    if (which != 1) std::fill(one.up_bias.begin(), one.up_bias.end(), 0.0f);
    if (which != 2) std::fill(one.down_bias.begin(), one.down_bias.end(), 0.0f);
    for (const Precision precision : kPrecisions) {
      for (const std::string& isa : test::supported_isas()) {
        const auto backend = make_backend({.isa = isa, .n_threads = 2, .precision = precision});
        std::vector<float> hidden(3 * 96), want(3 * 64), got(3 * 64);
        FfnOp op = one.op(*backend, kGelu, true);
        op.x = operand(x, 3);
        op.hidden = operand(hidden, 3);
        op.y = operand(want, 3);
        backend->ffn(op);
        if (which != 0) op.gate_bias = {};
        if (which != 1) op.up_bias = {};
        if (which != 2) op.down_bias = {};
        op.y = operand(got, 3);
        backend->ffn(op);
        for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(want[i], got[i]) << isa << " " << i;
      }
    }
  }
}

// Several in one call, each with biases and an activation of its own, as alone.
TEST(Activations, OperationsOfOneCallDoNotDependOnEachOther) {
  Random random(4);
  constexpr std::int64_t kN = 3, kD = 64;
  const std::vector<Ffn> all(4, Ffn(random, {kFourBits, kFourBits, kFourBits}, 96, kD));
  const std::vector<float> x = random.floats(kN * kD, 2);
  for (const Precision precision : kPrecisions) {
    for (const std::string& isa : test::supported_isas()) {
      const auto backend = make_backend({.isa = isa, .n_threads = 3, .precision = precision});
      std::vector<std::vector<float>> hidden(4, std::vector<float>(kN * 96)),
          alone(4, std::vector<float>(kN * kD)), together = alone;
      std::vector<FfnOp> ops;
      for (std::size_t i = 0; i < all.size(); ++i) {
        FfnOp op = all[i].op(*backend, i == 0 ? kSilu : i == 1 ? kGelu : kClamped, i != 2);
        op.x = operand(x, kN);
        op.hidden = operand(hidden[i], kN);
        op.y = operand(alone[i], kN);
        backend->ffn(op);
        op.y = operand(together[i], kN);
        ops.push_back(op);
      }
      backend->ffns(ops);
      for (std::size_t i = 0; i < all.size(); ++i) expect_same_bits(alone[i], together[i], isa);
    }
  }
}

// A gate far out: the limit of the activation, no infinity times zero.
TEST(Activations, ExtremeGates) {
  const auto diagonal = [](const std::vector<float>& values) {
    return operand(WeightView{
        .format = kF32, .rows = 2, .cols = 2, .data = std::as_bytes(std::span(values)).data()});
  };
  const std::vector<float> ones{1, 0, 0, 1}, zeros(4), up_bias{1, 1};
  const std::vector<float> x{1e30f, -1e30f, 100, -100, 3e38f, -3e38f};
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    for (const FfnActivation& activation : {kSilu, kGelu, kClamped}) {
      std::vector<float> hidden(6), y(6);
      backend.ffn({.gate = diagonal(ones),
                   .up = diagonal(zeros),
                   .down = diagonal(ones),
                   .up_bias = operand(up_bias),
                   .activation = activation,
                   .x = operand(x, 3),
                   .hidden = operand(hidden, 3),
                   .y = operand(y, 3)});
      const bool clamped = activation.kind == FfnActivation::Kind::ClampedSwiglu;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double want = x[i] < 0 ? 0 : clamped ? activated(activation, 7, 1) : x[i];
        EXPECT_NEAR(y[i], want, 1e-6 * want + 1e-30) << what << " of " << x[i];
      }
    }
  });
}

// In every format, with few rows and many; what lies between the rows must stay.
TEST(MatmulBias, AgainstDouble) {
  Random random(5);
  for (const WeightFormat& format : test::all_formats()) {
    const std::int64_t cols = test::fitting_cols(format, 96), rows = 37;
    const RandomWeight w(random, format, rows, cols);
    const std::vector<float> bias = random.floats(rows, 20);
    for (const std::int64_t n : {1, 5, 20}) {
      const std::int64_t x_stride = cols + 5, y_stride = rows + 3;
      const std::vector<float> x = random.floats(n * x_stride);
      std::vector<double> want(static_cast<std::size_t>(n * y_stride), -7);
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t r = 0; r < rows; ++r) {
          double sum = bias[r];
          for (std::int64_t c = 0; c < cols; ++c) sum += w.at(r, c) * x[i * x_stride + c];
          want[i * y_stride + r] = sum;
        }
      }
      for (const Precision precision : kPrecisions) {
        for (const std::string& isa : test::supported_isas()) {
          const auto backend = make_backend({.isa = isa, .n_threads = 2, .precision = precision});
          std::vector<float> y(want.size(), -7);
          backend->matmul({.weight = laid_out(*backend, w),
                           .bias = operand(bias),
                           .x = operand(x.data(), n, cols, x_stride),
                           .y = operand(y.data(), n, rows, y_stride)});
          expect_close(y, want, precision == Precision::Exact ? test::kKernelTolerance : 1e-4,
                       fmt::format("{} {} {}", test::format_name(format), isa, n));
        }
      }
    }
  }
}

// Products of one call, some with a bias: each is the product and then the sum.
TEST(MatmulBias, ComesAfterTheProduct) {
  Random random(6);
  constexpr std::int64_t kCols = 64;
  const std::vector<RandomWeight> all{{random, kFourBits, 40, kCols},
                                      {random, kFourBits, 7, kCols},
                                      {random, kEightBits, 33, kCols}};
  for (const std::int64_t n : {1, 3, 600}) {
    const std::vector<float> x = random.floats(n * kCols);
    for (const Precision precision : kPrecisions) {
      for (const std::string& isa : test::supported_isas()) {
        const auto backend = make_backend({.isa = isa, .n_threads = 2, .precision = precision});
        std::vector<std::vector<float>> biases, want, got;
        std::vector<MatmulOp> ops;
        for (const RandomWeight& w : all) {
          biases.push_back(random.floats(w.rows(), 5));
          want.emplace_back(static_cast<std::size_t>(n * w.rows()));
        }
        got = want;
        for (std::size_t i = 0; i < all.size(); ++i) {
          MatmulOp op{
              .weight = laid_out(*backend, all[i]), .x = operand(x, n), .y = operand(want[i], n)};
          backend->matmul(op);
          if (i != 1) {
            op.bias = operand(biases[i]);
            for (std::size_t at = 0; at < want[i].size(); ++at)
              want[i][at] += biases[i][at % biases[i].size()];
          }
          op.y = operand(got[i], n);
          ops.push_back(op);
        }
        backend->matmuls(ops);
        for (std::size_t i = 0; i < all.size(); ++i) expect_same_bits(want[i], got[i], isa);
      }
    }
  }
}

}  // namespace
}  // namespace moeflux
