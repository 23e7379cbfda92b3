// Linear attention: the convolution and the delta rule, the latter against two forms of it in
// double, the recurrence and the chunked one that prefill uses elsewhere.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu_backends.h"
#include "support/operands.h"
#include "support/random.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::expect_close;
using test::expect_same_bits;
using test::operand;
using test::Random;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// ---- convolution
// --------------------------------------------------------------------------------------

struct Convolution {
  std::int64_t channels;
  int width;
  std::vector<float> weight, state, x;

  Convolution(Random& random, std::int64_t channels_, int width_, std::int64_t n)
      : channels(channels_),
        width(width_),
        weight(random.floats(channels * width)),
        state(random.floats((width - 1) * channels)),
        x(random.floats(n * channels)) {}

  std::int64_t n() const { return static_cast<std::int64_t>(x.size()) / channels; }

  // The inputs of the past, then those of this call, at time t in [-(width - 1), n).
  double input(std::int64_t t, std::int64_t c) const {
    return t < 0 ? state[(t + width - 1) * channels + c] : x[t * channels + c];
  }

  // Output and new state after runs of the given lengths.
  std::pair<std::vector<float>, std::vector<float>> run(Backend& backend, std::int64_t step) const {
    std::vector<float> out(x.size(), -7), s = state;
    for (std::int64_t at = 0; at < n(); at += step) {
      const std::int64_t n_rows = std::min(step, n() - at);
      backend.short_conv({.x = operand(x, n()).row_range(at, n_rows),
                          .weight = operand(weight, width),
                          .state = operand(s, width - 1),
                          .out = operand(out, n()).row_range(at, n_rows)});
    }
    return {out, s};
  }
};

TEST(ShortConv, AgainstDouble) {
  Random random(1);
  for (const int width : {2, 3, 4, 7}) {
    for (const std::int64_t n : {1, 2, 3, 5, 20}) {  // shorter than the past, too
      const Convolution conv(random, 300, width, n);
      std::vector<double> want, want_state;
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t c = 0; c < conv.channels; ++c) {
          double sum = 0;
          for (int tap = 0; tap < width; ++tap)
            sum += conv.weight[tap * conv.channels + c] * conv.input(i - width + 1 + tap, c);
          want.push_back(sum * sigmoid(sum));
        }
      }
      for (std::int64_t t = n - width + 1; t < n; ++t) {
        for (std::int64_t c = 0; c < conv.channels; ++c) want_state.push_back(conv.input(t, c));
      }
      test::for_each_backend([&](Backend& backend, const std::string& what) {
        const auto [out, state] = conv.run(backend, n);
        expect_close(out, want, test::kKernelTolerance, what);
        expect_close(state, want_state, 0, what);
      });
    }
  }
}

TEST(ShortConv, InPiecesIsTheSame) {
  Random random(2);
  const Convolution conv(random, 37, 5, 23);
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    const auto [out, state] = conv.run(backend, 23);
    for (const std::int64_t step : {1, 2, 3, 7}) {
      const auto [out_pieces, state_pieces] = conv.run(backend, step);
      expect_same_bits(out, out_pieces, what);
      expect_same_bits(state, state_pieces, what);
    }
  });
}

// ---- delta rule
// -----------------------------------------------------------------------------------------

struct Delta {
  GatedDeltaSpec spec;
  std::int64_t n;
  std::vector<float> qkv, z, b, a, a_log, dt_bias, norm, state;
  float eps = 1e-6f;

  Delta(Random& random, const GatedDeltaSpec& spec_, std::int64_t n_, double size = 1)
      : spec(spec_),
        n(n_),
        qkv(random.floats(n * spec.conv_dim(), size)),
        z(random.floats(n * spec.value_dim(), 3)),
        b(random.floats(n * spec.n_value_heads, 3)),
        a(random.floats(n * spec.n_value_heads, 2)),
        a_log(random.floats(spec.n_value_heads)),
        dt_bias(random.floats(spec.n_value_heads)),
        norm(random.floats(spec.d_value, 2)),
        state(random.floats(std::int64_t{spec.n_value_heads} * spec.d_key * spec.d_value)) {}

  std::pair<std::vector<float>, std::vector<float>> run(Backend& backend, std::int64_t step) const {
    std::vector<float> out(z.size(), -7), s = state;
    std::vector<float> qkv_ = qkv, z_ = z, b_ = b, a_ = a;  // the operation destroys them
    for (std::int64_t at = 0; at < n; at += step) {
      const auto rows = [&](const std::vector<float>& x) {
        return operand(x, n).row_range(at, std::min(step, n - at));
      };
      backend.gated_delta({.spec = &spec,
                           .qkv = rows(qkv_),
                           .z = rows(z_),
                           .b = rows(b_),
                           .a = rows(a_),
                           .a_log = operand(a_log),
                           .dt_bias = operand(dt_bias),
                           .norm = operand(norm),
                           .eps = eps,
                           .state = operand(s, std::int64_t{spec.n_value_heads} * spec.d_key),
                           .out = rows(out)});
    }
    return {out, s};
  }

  // ---- what one head sees, in double

  std::vector<double> normalized(const float* x, double scale) const {
    double square = 1e-6;
    for (int c = 0; c < spec.d_key; ++c) square += static_cast<double>(x[c]) * x[c];
    std::vector<double> out;
    for (int c = 0; c < spec.d_key; ++c) out.push_back(x[c] / std::sqrt(square) * scale);
    return out;
  }
  std::vector<double> query(std::int64_t i, int h) const {
    const int key_head =
        spec.heads_alternate ? h % spec.n_key_heads : h / (spec.n_value_heads / spec.n_key_heads);
    return normalized(&qkv[i * spec.conv_dim() + key_head * spec.d_key],
                      1 / std::sqrt(static_cast<double>(spec.d_key)));
  }
  std::vector<double> key(std::int64_t i, int h) const {
    const int key_head =
        spec.heads_alternate ? h % spec.n_key_heads : h / (spec.n_value_heads / spec.n_key_heads);
    return normalized(&qkv[i * spec.conv_dim() + spec.key_dim() + key_head * spec.d_key], 1);
  }
  double value(std::int64_t i, int h, int c) const {
    return qkv[i * spec.conv_dim() + 2 * spec.key_dim() + h * spec.d_value + c];
  }
  double beta(std::int64_t i, int h) const { return sigmoid(b[i * spec.n_value_heads + h]); }
  double log_decay(std::int64_t i, int h) const {
    const double x = static_cast<double>(a[i * spec.n_value_heads + h]) + dt_bias[h];
    return -std::exp(static_cast<double>(a_log[h])) * std::log1p(std::exp(x));
  }
  // The gated norm of a read-out.
  void finish(std::int64_t i, int h, const std::vector<double>& o, std::vector<double>& out) const {
    double square = 0;
    for (const double x : o) square += x * x;
    const double inverse = 1 / std::sqrt(square / spec.d_value + eps);
    for (int c = 0; c < spec.d_value; ++c) {
      const std::int64_t at = (i * spec.n_value_heads + h) * spec.d_value + c;
      const double gate =
          spec.output_gate == GateActivation::Silu ? z[at] * sigmoid(z[at]) : sigmoid(z[at]);
      out[at] = o[c] * inverse * norm[c] * gate;
    }
  }
};

using Matrix = std::vector<std::vector<double>>;

struct Outcome {
  std::vector<double> out, state;
};

Outcome recurrent(const Delta& t) {
  const GatedDeltaSpec& s = t.spec;
  Outcome r{std::vector<double>(t.z.size()), std::vector<double>(t.state.begin(), t.state.end())};
  for (int h = 0; h < s.n_value_heads; ++h) {
    double* state = &r.state[static_cast<std::size_t>(h) * s.d_key * s.d_value];
    for (std::int64_t i = 0; i < t.n; ++i) {
      const auto q = t.query(i, h), k = t.key(i, h);
      const double decay = std::exp(t.log_decay(i, h));
      std::vector<double> o(static_cast<std::size_t>(s.d_value));
      for (int c = 0; c < s.d_value; ++c) {
        double read = 0;
        for (int row = 0; row < s.d_key; ++row) read += decay * state[row * s.d_value + c] * k[row];
        const double delta = t.beta(i, h) * (t.value(i, h, c) - read);
        for (int row = 0; row < s.d_key; ++row) {
          state[row * s.d_value + c] = decay * state[row * s.d_value + c] + k[row] * delta;
          o[c] += state[row * s.d_value + c] * q[row];
        }
      }
      t.finish(i, h, o, r.out);
    }
  }
  return r;
}

double dot(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// One chunk [begin, end) of one head; `state` is [d_key][d_value].
void chunk(const Delta& t, int h, std::int64_t begin, std::int64_t end, Matrix& state,
           std::vector<double>& out) {
  const int dk = t.spec.d_key, dv = t.spec.d_value;
  const auto size = static_cast<std::size_t>(end - begin);
  Matrix q, k;
  std::vector<double> cumulated, beta;
  for (std::int64_t i = begin; i < end; ++i) {
    q.push_back(t.query(i, h));
    k.push_back(t.key(i, h));
    beta.push_back(t.beta(i, h));
    cumulated.push_back(t.log_decay(i, h) + (i > begin ? cumulated.back() : 0));
  }
  const auto gamma = [&](std::size_t i, std::size_t j) {
    return std::exp(cumulated[i] - cumulated[j]);
  };
  // (I + A) X = rhs by forward substitution, for rhs = beta V and rhs = beta e^G K at once.
  Matrix u(size, std::vector<double>(static_cast<std::size_t>(dv))),
      w(size, std::vector<double>(static_cast<std::size_t>(dk)));
  for (std::size_t i = 0; i < size; ++i) {
    for (int c = 0; c < dv; ++c)
      u[i][c] = beta[i] * t.value(begin + static_cast<std::int64_t>(i), h, c);
    for (int c = 0; c < dk; ++c) w[i][c] = beta[i] * std::exp(cumulated[i]) * k[i][c];
    for (std::size_t j = 0; j < i; ++j) {
      const double lower = beta[i] * dot(k[i], k[j]) * gamma(i, j);
      for (int c = 0; c < dv; ++c) u[i][c] -= lower * u[j][c];
      for (int c = 0; c < dk; ++c) w[i][c] -= lower * w[j][c];
    }
  }
  for (std::size_t i = 0; i < size; ++i) {  // V~ = U - W S
    for (int c = 0; c < dv; ++c) {
      for (int row = 0; row < dk; ++row) u[i][c] -= w[i][row] * state[row][c];
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    std::vector<double> o(static_cast<std::size_t>(dv));
    for (int c = 0; c < dv; ++c) {
      for (int row = 0; row < dk; ++row) o[c] += std::exp(cumulated[i]) * q[i][row] * state[row][c];
      for (std::size_t j = 0; j <= i; ++j) o[c] += dot(q[i], k[j]) * gamma(i, j) * u[j][c];
    }
    t.finish(begin + static_cast<std::int64_t>(i), h, o, out);
  }
  for (int row = 0; row < dk; ++row) {
    for (int c = 0; c < dv; ++c) {
      state[row][c] *= std::exp(cumulated.back());
      for (std::size_t i = 0; i < size; ++i)
        state[row][c] += gamma(size - 1, i) * k[i][row] * u[i][c];
    }
  }
}

Outcome chunked(const Delta& t, std::int64_t chunk_size) {
  const GatedDeltaSpec& s = t.spec;
  Outcome r{std::vector<double>(t.z.size()), {}};
  for (int h = 0; h < s.n_value_heads; ++h) {
    Matrix state(static_cast<std::size_t>(s.d_key),
                 std::vector<double>(static_cast<std::size_t>(s.d_value)));
    for (int row = 0; row < s.d_key; ++row) {
      for (int c = 0; c < s.d_value; ++c)
        state[row][c] = t.state[(h * s.d_key + row) * s.d_value + c];
    }
    for (std::int64_t at = 0; at < t.n; at += chunk_size)
      chunk(t, h, at, std::min(at + chunk_size, t.n), state, r.out);
    for (const auto& row : state) r.state.insert(r.state.end(), row.begin(), row.end());
  }
  return r;
}

GatedDeltaSpec spec(int key_heads, int value_heads, int d_key, int d_value,
                    GateActivation gate = GateActivation::Silu) {
  return {.n_key_heads = key_heads,
          .n_value_heads = value_heads,
          .d_key = d_key,
          .d_value = d_value,
          .conv_width = 4,
          .output_gate = gate};
}

GatedDeltaSpec alternating(GatedDeltaSpec spec) {
  spec.heads_alternate = true;
  return spec;
}

class DeltaRule : public testing::TestWithParam<GatedDeltaSpec> {};

TEST_P(DeltaRule, AgainstTheRecurrence) {
  Random random(3);
  for (const std::int64_t n : {1, 2, 30}) {
    const Delta t(random, GetParam(), n);
    const Outcome want = recurrent(t);
    test::for_each_backend([&](Backend& backend, const std::string& what) {
      const auto [out, state] = t.run(backend, n);
      expect_close(out, want.out, 1e-5, what);
      expect_close(state, want.state, test::kKernelTolerance, what);
    });
  }
}

TEST_P(DeltaRule, AgainstTheChunkedForm) {
  Random random(4);
  const Delta t(random, GetParam(), 70);
  for (const std::int64_t size : {5, 64}) {
    const Outcome want = chunked(t, size);
    test::for_each_backend([&](Backend& backend, const std::string& what) {
      const auto [out, state] = t.run(backend, 70);
      expect_close(out, want.out, 2e-5, what);
      expect_close(state, want.state, 1e-5, what);
    });
  }
}

TEST_P(DeltaRule, InPiecesIsTheSame) {
  Random random(5);
  const Delta t(random, GetParam(), 24);
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    const auto [out, state] = t.run(backend, 24);
    for (const std::int64_t step : {1, 7}) {
      const auto [out_pieces, state_pieces] = t.run(backend, step);
      expect_same_bits(out, out_pieces, what);
      expect_same_bits(state, state_pieces, what);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeltaRule,
                         testing::Values(spec(1, 1, 1, 1), spec(2, 2, 16, 16),
                                         spec(2, 6, 16, 24, GateActivation::Sigmoid),
                                         spec(1, 4, 33, 17), spec(2, 4, 128, 128),
                                         alternating(spec(2, 6, 16, 16))),
                         [](const auto& test) {
                           const GatedDeltaSpec& s = test.param;
                           return fmt::format("{}x{}{}heads{}by{}", s.n_key_heads, s.n_value_heads,
                                              s.heads_alternate ? "alternating" : "", s.d_key,
                                              s.d_value);
                         });

// Read-outs far below sqrt(eps): the norm's eps decides the result, and the L2 norm's eps matters
// too.
TEST(DeltaRuleLimits, TinyNumbers) {
  Random random(6);
  Delta t(random, spec(1, 2, 8, 8), 6, 1e-3);
  std::fill(t.state.begin(), t.state.end(), 0.0f);
  const Outcome want = recurrent(t);
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    const auto [out, state] = t.run(backend, 6);
    expect_close(out, want.out, 1e-5, what);
  });
}

// A softplus argument in the hundreds: exp() of it is infinite in f32.
TEST(DeltaRuleLimits, ExtremeDecay) {
  Random random(7);
  Delta t(random, spec(1, 2, 8, 8), 5);
  for (float& x : t.a) x *= 200;
  const Outcome want = recurrent(t);
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    const auto [out, state] = t.run(backend, 5);
    expect_close(out, want.out, 1e-5, what);
    expect_close(state, want.state, 1e-5, what);
  });
}

}  // namespace
}  // namespace moeflux
