// A NaN must reach what depends on it, and nothing else: not other rows, heads, positions or
// channels.
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "backends/cpu_backends.h"
#include "backends/kv_memory.h"
#include "support/operands.h"
#include "support/random.h"

namespace moeflux {
namespace {

using test::operand;
using test::Random;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

void expect_nan_exactly(const std::vector<float>& out,
                        const std::function<bool(std::int64_t)>& expected,
                        const std::string& what) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(!std::isfinite(out[i]), expected(static_cast<std::int64_t>(i)))
        << what << " [" << i << "] " << out[i];
  }
}

Weight weight_of(const std::vector<float>& values, std::int64_t rows) {
  const WeightView view{.format = {.kind = WeightKind::F32},
                        .rows = rows,
                        .cols = static_cast<std::int64_t>(values.size()) / rows,
                        .data = std::as_bytes(std::span(values)).data(),
                        .scales = nullptr,
                        .biases = nullptr};
  return operand(view);
}

TEST(NonFinite, Matmul) {
  Random random(1);
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    for (const float bad : {kNan, kInf, -kInf}) {
      std::vector<float> w = random.floats(20 * 33), x = random.floats(10 * 33), y(200);
      x[4 * 33 + 32] = bad;  // in the tail
      backend.matmul({.weight = weight_of(w, 20), .x = operand(x, 10), .y = operand(y, 10)});
      expect_nan_exactly(
          y, [](std::int64_t i) { return i / 20 == 4; }, what + " x");
      x[4 * 33 + 32] = 1;
      w[7 * 33 + 3] = bad;
      backend.matmul({.weight = weight_of(w, 20), .x = operand(x, 10), .y = operand(y, 10)});
      expect_nan_exactly(
          y, [](std::int64_t i) { return i % 20 == 7; }, what + " w");
    }
  });
}

TEST(NonFinite, HeadMatmul) {
  Random random(2);
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    for (const bool transpose : {false, true}) {
      const std::vector<float> w = random.floats(3 * 8 * 8);
      std::vector<float> x = random.floats(5 * 24), y(120);
      x[2 * 24 + 8 + 5] = kNan;  // token 2, head 1
      backend.head_matmul(
          {{weight_of(w, 24), 8, 0, 8, transpose}, 3, operand(x, 5), 8, operand(y, 5), 8});
      expect_nan_exactly(
          y, [](std::int64_t i) { return i / 24 == 2 && i % 24 / 8 == 1; }, what);
    }
  });
}

TEST(NonFinite, FfnAndNormAndCombine) {
  Random random(3);
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    const std::vector<float> gate = random.floats(12 * 10), up = random.floats(12 * 10),
                             down = random.floats(10 * 12);
    std::vector<float> x = random.floats(6 * 10), y(60), hidden(72);
    x[35] = kNan;
    backend.ffn({.gate = weight_of(gate, 12),
                 .up = weight_of(up, 12),
                 .down = weight_of(down, 10),
                 .x = operand(x, 6),
                 .hidden = operand(hidden, 6),
                 .y = operand(y, 6)});
    expect_nan_exactly(
        y, [](std::int64_t i) { return i / 10 == 3; }, what + " ffn");

    const std::vector<float> weight = random.floats(10);
    backend.rms_norm(
        {.x = operand(x, 6), .weight = operand(weight), .eps = 1e-6f, .out = operand(y, 6)});
    expect_nan_exactly(
        y, [](std::int64_t i) { return i / 10 == 3; }, what + " norm");

    // 6 rows as 3 tokens of 2 experts; a weight of zero does not hide a NaN.
    std::vector<float> weights = random.floats(6), out(30);
    weights[3] = 0;
    backend.combine(
        {.experts = operand(x, 6), .weights = operand(weights, 3), .out = operand(out, 3)});
    expect_nan_exactly(
        out, [](std::int64_t i) { return i == 15; }, what + " combine");
  });
}

TEST(NonFinite, Rope) {
  Random random(4);
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    for (const bool interleaved : {false, true}) {
      const RopeSpec rope = make_rope(1e4, 8, interleaved);
      std::vector<float> x = random.floats(3 * 2 * 10);
      x[20 + 10 + 3] = kNan;  // token 1, head 1, dimension 3
      backend.rope({&rope, operand(x, 3), 2, 10, test::positions(9, 3)});
      const std::int64_t partner = interleaved ? 2 : 7;
      expect_nan_exactly(
          x, [&](std::int64_t i) { return i == 33 || i == 30 + partner; }, what);
    }
  });
}

struct AttentionInputs {
  static constexpr std::int64_t kTokens = 6, kFirst = 3, kHeads = 4, kHead = 5;
  AttentionSpec spec{
      .n_heads = 4, .n_kv_heads = 2, .d_head = 5, .has_output_gate = true, .scale = 0.4f};
  KvType type = KvType::F32;
  std::vector<float> q, gate, k, v;

  explicit AttentionInputs(Random& random)
      : q(random.floats(kTokens * 20)),
        gate(random.floats(kTokens * 20)),
        k(random.floats((kFirst + kTokens) * 10)),
        v(random.floats((kFirst + kTokens) * 10)) {}

  std::vector<float> run(Backend& backend) const {
    std::vector<float> out(kTokens * 20), queries;  // per head the query, then the gate
    for (std::int64_t at = 0; at < kTokens * 20; at += kHead) {
      queries.insert(queries.end(), &q[at], &q[at] + kHead);
      queries.insert(queries.end(), &gate[at], &gate[at] + kHead);
    }
    const test::KvMemory keys({type, KvLayout::Tiles, 2, kHead, kFirst + kTokens}, backend, k);
    const test::KvMemory values({type, KvLayout::Rows, 2, kHead, kFirst + kTokens}, backend, v);
    backend.attention({.spec = &spec,
                       .q = operand(queries, kTokens),
                       .k = keys.view(),
                       .v = values.view(),
                       .sinks = {},
                       .positions = test::positions(kFirst, kTokens),
                       .out = operand(out, kTokens)});
    return out;
  }
};

TEST(NonFinite, Attention) {
  test::for_each_backend([](Backend& backend, const std::string& what) {
    Random random(5);
    const AttentionInputs good(random);
    const auto token = [](std::int64_t i) { return i / 20; };
    const auto head = [](std::int64_t i) { return i % 20 / 5; };
    {
      AttentionInputs in = good;  // a key at position 5 = token 2, second key-value head
      in.k[5 * 10 + 5 + 1] = kNan;
      expect_nan_exactly(
          in.run(backend), [&](std::int64_t i) { return token(i) >= 2 && head(i) >= 2; },
          what + " k");
    }
    {
      AttentionInputs in = good;
      in.v[5 * 10 + 5 + 1] = kNan;
      expect_nan_exactly(
          in.run(backend),
          [&](std::int64_t i) { return token(i) >= 2 && head(i) >= 2 && i % 5 == 1; }, what + " v");
    }
    for (const KvType type : kAllKvTypes) {  // q8: a scale is shared by the whole row
      for (const float bad : {kNan, kInf, -kInf}) {
        AttentionInputs in = good;
        in.type = type;
        in.v[5 * 10 + 5 + 1] = bad;
        expect_nan_exactly(
            in.run(backend),
            [&](std::int64_t i) {
              return token(i) >= 2 && head(i) >= 2 && (i % 5 == 1 || type == KvType::Q8);
            },
            what + " v as " + std::string(kv_type_name(type)));
      }
    }
    for (const KvType type : kAllKvTypes) {  // seen through a window of three: by tokens 2 to 4
      AttentionInputs in = good;
      in.type = type;
      in.spec.window = 3;
      in.k[5 * 10 + 5 + 1] = kNan;
      expect_nan_exactly(
          in.run(backend),
          [&](std::int64_t i) { return token(i) >= 2 && token(i) <= 4 && head(i) >= 2; },
          what + " k in a window");
      in.k = good.k;
      in.v[5 * 10 + 5 + 1] = kNan;
      expect_nan_exactly(
          in.run(backend),
          [&](std::int64_t i) {
            return token(i) >= 2 && token(i) <= 4 && head(i) >= 2 &&
                   (i % 5 == 1 || type == KvType::Q8);
          },
          what + " v in a window");
    }
    {
      AttentionInputs in = good;
      in.q[3 * 20 + 5] = kNan;
      expect_nan_exactly(
          in.run(backend), [&](std::int64_t i) { return token(i) == 3 && head(i) == 1; },
          what + " q");
    }
    {
      AttentionInputs in = good;
      in.gate[47] = kNan;
      expect_nan_exactly(
          in.run(backend), [](std::int64_t i) { return i == 47; }, what + " gate");
    }
  });
}

TEST(NonFinite, ShortConv) {
  Random random(6);
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    const std::vector<float> w = random.floats(7 * 3);
    std::vector<float> x = random.floats(5 * 7), state = random.floats(2 * 7), out(35);
    x[2 * 7 + 4] = kNan;
    backend.short_conv({operand(x, 5), operand(w, 3), operand(state, 2), operand(out, 5)});
    expect_nan_exactly(
        out, [](std::int64_t i) { return i % 7 == 4 && i / 7 >= 2; }, what);
    expect_nan_exactly(
        state, [](std::int64_t) { return false; }, what + " state");  // tokens 3 and 4
  });
}

TEST(NonFinite, GatedDelta) {
  Random random(7);
  const GatedDeltaSpec spec{
      .n_key_heads = 2, .n_value_heads = 4, .d_key = 6, .d_value = 5, .conv_width = 4};
  const std::int64_t width = spec.conv_dim();
  const std::vector<float> all_z = random.floats(5 * 20), all_b = random.floats(20),
                           all_a = random.floats(20);
  const std::vector<float> a_log = random.floats(4), dt_bias = random.floats(4),
                           norm = random.floats(5);
  test::for_each_backend([&](Backend& backend, const std::string& what) {
    std::vector<float> z = all_z, b = all_b, a = all_a;
    std::vector<float> qkv = random.floats(5 * width), state = random.floats(4 * 30), out(100);
    qkv[2 * width + 2 * spec.key_dim() + 2 * 5 + 3] = kNan;  // token 2, value head 2, component 3
    backend.gated_delta({.spec = &spec,
                         .qkv = operand(qkv, 5),
                         .z = operand(z, 5),
                         .b = operand(b, 5),
                         .a = operand(a, 5),
                         .a_log = operand(a_log),
                         .dt_bias = operand(dt_bias),
                         .norm = operand(norm),
                         .eps = 1e-6f,
                         .state = operand(state, 4 * 6),
                         .out = operand(out, 5)});
    expect_nan_exactly(
        out, [](std::int64_t i) { return i / 20 >= 2 && i % 20 / 5 == 2; }, what);
    expect_nan_exactly(
        state, [](std::int64_t i) { return i / 30 == 2 && i % 5 == 3; }, what + " state");
  });
}

}  // namespace
}  // namespace moeflux
