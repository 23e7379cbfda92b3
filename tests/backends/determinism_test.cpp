// The promise of op.h: the number of threads, the instruction set and how rows are split over calls
// change no bit.
#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu_backends.h"
#include "backends/kv_memory.h"
#include "backends/random_weight.h"
#include "support/operands.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::operand;
using test::positions;
using test::Random;
using test::RandomWeight;

constexpr std::int64_t kRows = 29;

// Runs an operation for rows [begin, begin + n) and writes into `out`; state lives at the end of
// `out`.
using RunRows =
    std::function<void(Backend& backend, std::int64_t begin, std::int64_t n, float* out)>;

std::vector<float> run_split(Backend& backend, const RunRows& run, std::vector<float> out,
                             std::int64_t step) {
  for (std::int64_t at = 0; at < kRows; at += step)
    run(backend, at, std::min(step, kRows - at), out.data());
  return out;
}

void expect_deterministic(const RunRows& run, std::int64_t n_out, std::vector<float> state = {}) {
  std::vector<float> start(static_cast<std::size_t>(n_out), -7.0f);
  start.insert(start.end(), state.begin(), state.end());
  const std::vector<float> want = run_split(*test::cpu_backend("scalar"), run, start, kRows);
  const auto check = [&](const std::string& isa, int n_threads, std::int64_t step) {
    test::expect_same_bits(want, run_split(*test::cpu_backend(isa, n_threads), run, start, step),
                           fmt::format("{}, {} threads, {} rows a call", isa, n_threads, step));
  };
  for (const std::string& isa : test::supported_isas()) {
    for (const int n_threads : {1, 2, 3, 5}) check(isa, n_threads, kRows);
    for (const std::int64_t step : {1, 4, 9}) check(isa, 2, step);
  }
}

class Weights : public testing::TestWithParam<WeightFormat> {};

TEST_P(Weights, Matmul) {
  Random random(1);
  const std::int64_t cols = test::fitting_cols(GetParam(), 500);  // enough for several tasks
  const RandomWeight w(random, GetParam(), 90, cols);
  const std::vector<float> x = random.floats(kRows * cols);
  expect_deterministic(
      [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
        backend.matmul({.weight = operand(w.view()),
                        .x = operand(x, kRows).row_range(at, n),
                        .y = operand(out + at * 90, n, 90)});
      },
      kRows * 90);
}

TEST_P(Weights, Embed) {
  Random random(2);
  const std::int64_t cols = test::fitting_cols(GetParam(), 75);
  const RandomWeight w(random, GetParam(), 53, cols);
  const auto tokens = random.tokens(kRows, 53);
  expect_deterministic(
      [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
        backend.embed({.table = operand(w.view()),
                       .tokens = operand(tokens).col_range(at, n),
                       .out = operand(out + at * cols, n, cols)});
      },
      kRows * cols);
}

TEST_P(Weights, Ffn) {
  Random random(3);
  const std::int64_t d = test::fitting_cols(GetParam(), 200),
                     d_ff = test::fitting_cols(GetParam(), 230);
  const RandomWeight gate(random, GetParam(), d_ff, d), up(random, GetParam(), d_ff, d),
      down(random, GetParam(), d, d_ff);
  const std::vector<float> x = random.floats(kRows * d);
  expect_deterministic(
      [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
        std::vector<float> hidden(static_cast<std::size_t>(n * d_ff));
        std::vector<std::int32_t> rows;
        for (std::int64_t i = at; i < at + n; ++i) rows.push_back(static_cast<std::int32_t>(i));
        backend.ffn({.gate = operand(gate.view()),
                     .up = operand(up.view()),
                     .down = operand(down.view()),
                     .x = operand(x, kRows),
                     .rows_in = operand(rows),
                     .rows_out = operand(rows),
                     .hidden = operand(hidden, n),
                     .y = operand(out, kRows, d)});
      },
      kRows * d);
}

TEST_P(Weights, HeadMatmul) {
  Random random(4);
  const std::int64_t cols = test::fitting_cols(GetParam(), 30);
  const RandomWeight w(random, GetParam(), 3 * 20, cols);
  for (const bool transpose : {false, true}) {
    const std::int64_t n_in = transpose ? 20 : cols, n_out = transpose ? cols : 20;
    const std::vector<float> x = random.floats(kRows * 3 * n_in);
    expect_deterministic(
        [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
          backend.head_matmul({{operand(w.view()), 20, 0, 20, transpose},
                               3,
                               operand(x, kRows).row_range(at, n),
                               n_in,
                               operand(out + at * 3 * n_out, n, 3 * n_out),
                               n_out});
        },
        kRows * 3 * n_out);
  }
}

INSTANTIATE_TEST_SUITE_P(Determinism, Weights, testing::ValuesIn(test::all_formats()),
                         [](const auto& test) { return test::format_name(test.param); });

TEST(Determinism, RmsNorm) {
  Random random(5);
  const std::vector<float> x = random.floats(kRows * 77), w = random.floats(77);
  expect_deterministic(
      [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
        backend.rms_norm({.x = operand(x, kRows).row_range(at, n),
                          .weight = operand(w),
                          .eps = 1e-6f,
                          .out = operand(out + at * 77, n, 77)});
      },
      kRows * 77);
}

TEST(Determinism, Rope) {
  Random random(6);
  const RopeSpec rope = make_rope(1e4, 24, true);
  const std::vector<float> x = random.floats(kRows * 2 * 30);
  expect_deterministic(
      [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
        std::copy_n(x.data() + at * 60, n * 60, out + at * 60);
        backend.rope({&rope, operand(out + at * 60, n, 60), 2, 30, positions(500 + at, n)});
      },
      kRows * 60);
}

class KvTypes : public testing::TestWithParam<KvType> {};

// Positions 240 to 268 with 6 heads, over three blocks of keys; then with so few heads and so many
// keys that threads share a query.
TEST_P(KvTypes, Attention) {
  Random random(7);
  struct Shape {
    int n_heads, n_kv_heads;
    std::int64_t first;
    int window = 0;
    bool has_gate = true, has_sinks = false;
  };
  for (const auto& [n_heads, n_kv_heads, first, window, has_gate, has_sinks] :
       {Shape{6, 2, 240}, Shape{1, 1, 900}, Shape{40, 2, 120}, Shape{6, 2, 240, 0, false, true},
        Shape{6, 2, 240, 20}, Shape{1, 1, 900, 300, false, true}, Shape{40, 2, 120, 128, false}}) {
    const int d = 20;
    const AttentionSpec spec{.n_heads = n_heads,
                             .n_kv_heads = n_kv_heads,
                             .d_head = d,
                             .has_output_gate = has_gate,
                             .has_sinks = has_sinks,
                             .window = window,
                             .scale = 0.2f};
    const int width = n_heads * spec.query_head();
    const std::int64_t length = first + kRows;
    const std::vector<float> q = random.floats(kRows * width),
                             k = random.floats(length * n_kv_heads * d),
                             v = random.floats(length * n_kv_heads * d),
                             sinks = random.floats(n_heads);
    const auto scalar = test::cpu_backend("scalar");
    const test::KvMemory keys({GetParam(), KvLayout::Tiles, n_kv_heads, d, length}, *scalar, k);
    const test::KvMemory values({GetParam(), KvLayout::Rows, n_kv_heads, d, length}, *scalar, v);
    expect_deterministic(
        [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
          backend.attention({.spec = &spec,
                             .q = operand(q, kRows).row_range(at, n),
                             .k = keys.view(),
                             .v = values.view(),
                             .sinks = has_sinks ? operand(sinks) : View{},
                             .positions = positions(first + at, n),
                             .out = operand(out + at * spec.q_dim(), n, spec.q_dim())});
        },
        kRows * spec.q_dim());
  }
}

TEST_P(KvTypes, LatentAttention) {
  Random random(8);
  for (const auto& [n_heads, first] : {std::pair<int, std::int64_t>(5, 240), {33, 50}, {1, 900}}) {
    const MlaSpec spec{.n_heads = n_heads,
                       .q_rank = 0,
                       .kv_rank = 33,
                       .d_nope = 1,
                       .d_rope = 10,
                       .d_value = 1,
                       .rope = {},
                       .scale = 0.2f,
                       .latent_norm_eps = 1e-6f};
    const int wide = n_heads * 33, narrow = n_heads * spec.d_query();
    const std::vector<float> q_latent = random.floats(kRows * wide),
                             q = random.floats(kRows * narrow);
    const test::KvMemory kv({GetParam(), KvLayout::Rows, 1, 43, first + kRows},
                            *test::cpu_backend("scalar"), random.floats((first + kRows) * 43));
    expect_deterministic(
        [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
          backend.latent_attention({.spec = &spec,
                                    .q_latent = operand(q_latent, kRows).row_range(at, n),
                                    .q = operand(q, kRows).row_range(at, n),
                                    .kv = kv.view(),
                                    .positions = positions(first + at, n),
                                    .out = operand(out + at * wide, n, wide)});
        },
        kRows * wide);
  }
}

TEST_P(KvTypes, ExpandedAttention) {
  Random random(8);
  for (const auto& [n_heads, first] : {std::pair<int, std::int64_t>(5, 240), {33, 50}, {1, 900}}) {
    const MlaSpec spec{.n_heads = n_heads,
                       .q_rank = 0,
                       .kv_rank = 33,
                       .d_nope = 7,
                       .d_rope = 10,
                       .d_value = 19,
                       .rope = {},
                       .scale = 0.2f,
                       .latent_norm_eps = 1e-6f};
    const int d_query = n_heads * 17, narrow = n_heads * 19;
    const std::vector<float> q = random.floats(kRows * d_query);
    const RandomWeight w(random, {.kind = WeightKind::BF16}, n_heads * 26, 33);
    const test::KvMemory kv({GetParam(), KvLayout::Rows, 1, 43, first + kRows},
                            *test::cpu_backend("scalar"), random.floats((first + kRows) * 43));
    expect_deterministic(
        [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
          backend.expanded_attention({.spec = &spec,
                                      .keys = {operand(w.view()), 26, 0, 7, true},
                                      .values = {operand(w.view()), 26, 7, 19, false},
                                      .q = operand(q, kRows).row_range(at, n),
                                      .kv = kv.view(),
                                      .positions = positions(first + at, n),
                                      .out = operand(out + at * narrow, n, narrow)});
        },
        kRows * narrow);
  }
}

INSTANTIATE_TEST_SUITE_P(Determinism, KvTypes, testing::ValuesIn(kAllKvTypes),
                         [](const auto& test) { return std::string(kv_type_name(test.param)); });

TEST(Determinism, ShortConv) {
  Random random(9);
  const std::int64_t channels = 600;  // several tasks
  const std::vector<float> x = random.floats(kRows * channels), w = random.floats(channels * 4);
  expect_deterministic(
      [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
        backend.short_conv({.x = operand(x, kRows).row_range(at, n),
                            .weight = operand(w, 4),
                            .state = operand(out + kRows * channels, 3, channels),
                            .out = operand(out + at * channels, n, channels)});
      },
      kRows * channels, random.floats(3 * channels));
}

TEST(Determinism, GatedDelta) {
  Random random(10);
  const GatedDeltaSpec spec{
      .n_key_heads = 2, .n_value_heads = 6, .d_key = 18, .d_value = 21, .conv_width = 4};
  const std::int64_t width = spec.conv_dim(), values = spec.value_dim();
  const std::vector<float> all_qkv = random.floats(kRows * width),
                           all_z = random.floats(kRows * values);
  const std::vector<float> all_b = random.floats(kRows * 6), all_a = random.floats(kRows * 6);
  const std::vector<float> a_log = random.floats(6), dt_bias = random.floats(6),
                           norm = random.floats(21);
  expect_deterministic(
      [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
        std::vector<float> qkv = all_qkv, z = all_z, b = all_b, a = all_a;  // it destroys them
        backend.gated_delta({.spec = &spec,
                             .qkv = operand(qkv, kRows).row_range(at, n),
                             .z = operand(z, kRows).row_range(at, n),
                             .b = operand(b, kRows).row_range(at, n),
                             .a = operand(a, kRows).row_range(at, n),
                             .a_log = operand(a_log),
                             .dt_bias = operand(dt_bias),
                             .norm = operand(norm),
                             .eps = 1e-6f,
                             .state = operand(out + kRows * values, 6 * 18, 21),
                             .out = operand(out + at * values, n, values)});
      },
      kRows * values, random.floats(6 * 18 * 21));
}

TEST(Determinism, Combine) {
  Random random(11);
  const std::vector<float> experts = random.floats(kRows * 3 * 50),
                           weights = random.floats(kRows * 3);
  const std::vector<float> shared = random.floats(kRows * 50), gate = random.floats(kRows);
  expect_deterministic(
      [&](Backend& backend, std::int64_t at, std::int64_t n, float* out) {
        backend.combine({.experts = operand(experts, kRows * 3).row_range(at * 3, n * 3),
                         .weights = operand(weights, kRows).row_range(at, n),
                         .shared = operand(shared, kRows).row_range(at, n),
                         .shared_gate = operand(gate, kRows).row_range(at, n),
                         .out = operand(out + at * 50, n, 50)});
      },
      kRows * 50);
}

}  // namespace
}  // namespace moeflux
