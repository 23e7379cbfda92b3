#include "backends/timed_backend.h"

#include <gtest/gtest.h>

#include "backends/random_weight.h"
#include "support/operands.h"

namespace moeflux {
namespace {

using test::operand;

OpTime time_of(const TimedBackend& backend, std::string_view name) {
  for (const OpTime& time : backend.times()) {
    if (time.name == name) return time;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(TimedBackend, HandsOnAndCounts) {
  test::Random random(1);
  const auto plain = make_backend({});
  TimedBackend timed(make_backend({}));
  EXPECT_EQ(timed.name(), plain->name());
  EXPECT_EQ(timed.n_threads(), plain->n_threads());

  const WeightFormat format{WeightKind::Affine, 4, 64, 0, DType::BF16};
  const test::RandomWeight weight(random, format, 24, 128);
  const std::vector<float> x = random.floats(3 * 128);
  std::vector<float> want(3 * 24), got(3 * 24);
  const auto product = [&](std::vector<float>& y) {
    return MatmulOp{.weight = operand(weight.view()), .x = operand(x, 3), .y = operand(y, 3)};
  };
  plain->matmul(product(want));
  timed.matmul(product(got));
  timed.matmul(product(got));
  EXPECT_EQ(want, got);
  timed.add({.x = operand(x.data(), 1, 10), .y = operand(got.data(), 1, 10)});

  EXPECT_EQ(time_of(timed, "matmul").calls, 2u);
  EXPECT_GT(time_of(timed, "matmul").ns, 0u);
  EXPECT_EQ(time_of(timed, "add").calls, 1u);
  EXPECT_EQ(time_of(timed, "ffn").calls, 0u);
  EXPECT_EQ(time_of(timed, "ffn").ns, 0u);
}

}  // namespace
}  // namespace moeflux
