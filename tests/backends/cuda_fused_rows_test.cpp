// Operations of few rows that the backend puts together (Waiting in cuda_backend.h), against the
// processor, which does not.
#include <gtest/gtest.h>

#include "backends/cuda_support.h"
#include "backends/random_weight.h"
#include "support/random.h"

namespace moeflux {
namespace {

using test::CudaAndCpu;
using test::RandomWeight;

constexpr double kClose = 5e-4;

WeightFormat four_bits() {
  return {.kind = WeightKind::Affine, .bits = 4, .group = 64, .scale_dtype = DType::BF16};
}
WeightFormat eight_bits() {
  return {.kind = WeightKind::Affine, .bits = 8, .group = 32, .scale_dtype = DType::F16};
}

const auto kGpu = [](const auto& pair) { return pair.gpu; };
const auto kCpu = [](const auto& pair) { return pair.cpu; };

class FusedRows : public testing::TestWithParam<std::int64_t> {};

TEST_P(FusedRows, NormBecomesPartOfTheProductsAndIsKept) {
  const std::int64_t n = GetParam();
  test::Random random(3);
  for (const std::int64_t d : {64, 192, 1088, 2048}) {
    CudaAndCpu both(Precision::Fine);
    const RandomWeight first(random, four_bits(), 37, d), second(random, eight_bits(), 70, d);
    const auto a = both.weight(first.view()), b = both.weight(second.view());
    const auto x = both.floats(n, d, random.floats(n * d));
    const auto scale = both.floats(1, d, random.floats(d));
    const auto h = both.results(n, d), y = both.results(n, 37), z = both.results(n, 70);
    const auto run = [&](Backend& backend, auto pick) {
      backend.rms_norm({.x = pick(x), .weight = pick(scale), .eps = 1e-5f, .out = pick(h)});
      const MatmulOp products[] = {{.weight = pick(a), .x = pick(h), .y = pick(y)},
                                   {.weight = pick(b), .x = pick(h), .y = pick(z)}};
      backend.matmuls(products);
    };
    run(*both.gpu, kGpu);
    run(*both.cpu, kCpu);
    EXPECT_LT(both.difference(h), 1e-5) << d;
    EXPECT_LT(both.difference(y), kClose) << d;
    EXPECT_LT(both.difference(z), kClose) << d;
  }
}

TEST_P(FusedRows, ANormThatSomethingElseFollowsIsThere) {
  const std::int64_t n = GetParam(), d = 96;
  test::Random random(4);
  CudaAndCpu both(Precision::Fine);
  const auto x = both.floats(n, d, random.floats(n * d)),
             scale = both.floats(1, d, random.floats(d));
  const auto h = both.results(n, d), sum = both.floats(n, d, random.floats(n * d));
  const auto run = [&](Backend& backend, auto pick) {
    backend.rms_norm({.x = pick(x), .weight = pick(scale), .eps = 1e-5f, .out = pick(h)});
    backend.add({.x = pick(h), .y = pick(sum)});
  };
  run(*both.gpu, kGpu);
  run(*both.cpu, kCpu);
  EXPECT_LT(both.difference(sum), 1e-5);
}

TEST_P(FusedRows, ASumBecomesPartOfTheProductBeforeIt) {
  const std::int64_t n = GetParam();
  test::Random random(5);
  for (const WeightFormat& format : {four_bits(), WeightFormat{.kind = WeightKind::BF16}}) {
    CudaAndCpu both(Precision::Fine);
    const RandomWeight w(random, format, 45, 320);
    const auto weight = both.weight(w.view());
    const auto x = both.floats(n, 320, random.floats(n * 320));
    const auto y = both.results(n, 45), total = both.floats(n, 45, random.floats(n * 45));
    const auto run = [&](Backend& backend, auto pick) {
      backend.matmul({.weight = pick(weight), .x = pick(x), .y = pick(y)});
      backend.add({.x = pick(y), .y = pick(total)});
    };
    run(*both.gpu, kGpu);
    run(*both.cpu, kCpu);
    EXPECT_LT(both.difference(y), kClose);
    EXPECT_LT(both.difference(total), kClose);
  }
}

// What reads and writes the same row is not put together.
TEST(FusedRowsThatOverlap, AreDoneOneAfterTheOther) {
  constexpr std::int64_t kWide = 1088;
  test::Random random(8);
  CudaAndCpu both(Precision::Fine);
  const RandomWeight w(random, four_bits(), kWide, kWide);
  const auto weight = both.weight(w.view());
  const auto x = both.floats(1, kWide, random.floats(kWide));
  const auto scale = both.floats(1, kWide, random.floats(kWide));
  const auto h = both.results(1, kWide), y = both.results(1, kWide);
  const auto run = [&](Backend& backend, auto pick) {
    backend.matmul({.weight = pick(weight), .x = pick(x), .y = pick(y)});
    backend.add({.x = pick(y), .y = pick(x)});
    backend.rms_norm({.x = pick(x), .weight = pick(scale), .eps = 1e-5f, .out = pick(h)});
    backend.matmul({.weight = pick(weight), .x = pick(h), .y = pick(x)});
  };
  run(*both.gpu, kGpu);
  run(*both.cpu, kCpu);
  EXPECT_LT(both.difference(h), kClose);
  EXPECT_LT(both.difference(x), kClose);
}

TEST_P(FusedRows, AStepOfTheDeltaRule) {
  test::Random random(6);
  for (const auto& [d_key, d_value] : {std::pair(32, 64), std::pair(128, 128), std::pair(64, 32)}) {
    GatedDeltaSpec spec;
    spec.n_key_heads = 2;
    spec.n_value_heads = 4;
    spec.d_key = d_key;
    spec.d_value = d_value;
    spec.heads_alternate = GetParam() % 2 == 0;
    CudaAndCpu both(Precision::Fine);
    const std::int64_t conv = 2 * 2 * d_key + 4 * d_value, out_dim = 4 * d_value;
    const auto state = both.floats(4 * d_key, d_value, random.floats(4 * d_key * d_value));
    const auto a_log = both.floats(1, 4, random.floats(4)),
               dt_bias = both.floats(1, 4, random.floats(4));
    const auto norm = both.floats(1, d_value, random.floats(d_value));
    for (int step = 0; step < 3; ++step) {
      const auto qkv = both.floats(1, conv, random.floats(conv));
      const auto z = both.floats(1, out_dim, random.floats(out_dim));
      const auto a = both.floats(1, 4, random.floats(4)), b = both.floats(1, 4, random.floats(4));
      const auto out = both.results(1, out_dim);
      const auto run = [&](Backend& backend, auto pick) {
        backend.gated_delta({.spec = &spec,
                             .qkv = pick(qkv),
                             .z = pick(z),
                             .b = pick(b),
                             .a = pick(a),
                             .a_log = pick(a_log),
                             .dt_bias = pick(dt_bias),
                             .norm = pick(norm),
                             .eps = 1e-6f,
                             .state = pick(state),
                             .out = pick(out)});
      };
      run(*both.gpu, kGpu);
      run(*both.cpu, kCpu);
      EXPECT_LT(both.difference(out), 1e-5) << d_key << ", " << step;
      EXPECT_LT(both.difference(state), 1e-5) << d_key << ", " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, FusedRows, testing::Values(1, 2, 5));

}  // namespace
}  // namespace moeflux
