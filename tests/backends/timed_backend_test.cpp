#include "backends/timed_backend.h"

#include <gtest/gtest.h>

#include "backends/random_weight.h"

namespace moeflux {
namespace {

OpTime time_of(const TimedBackend& backend, std::string_view name) {
  for (const OpTime& time : backend.times()) {
    if (time.name == name) return time;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(TimedBackend, HandsOnAndCounts) {
  test::Random random(1);
  const auto plain = make_cpu_backend({});
  TimedBackend timed(make_cpu_backend({}));
  EXPECT_EQ(timed.name(), plain->name());
  EXPECT_EQ(timed.n_threads(), plain->n_threads());

  const WeightFormat format{WeightKind::Affine, 4, 64, 0, DType::BF16};
  const test::RandomWeight weight(random, format, 24, 128);
  const std::vector<float> x = random.floats(3 * 128);
  std::vector<float> want(3 * 24), got(3 * 24);
  plain->matmul({weight.view(), x.data(), 128, 3, want.data(), 24});
  timed.matmul({weight.view(), x.data(), 128, 3, got.data(), 24});
  timed.matmul({weight.view(), x.data(), 128, 3, got.data(), 24});
  EXPECT_EQ(want, got);
  timed.add({x.data(), got.data(), 10});

  EXPECT_EQ(time_of(timed, "matmul").calls, 2u);
  EXPECT_GT(time_of(timed, "matmul").ns, 0u);
  EXPECT_EQ(time_of(timed, "add").calls, 1u);
  EXPECT_EQ(time_of(timed, "ffn").calls, 0u);
  EXPECT_EQ(time_of(timed, "ffn").ns, 0u);
}

}  // namespace
}  // namespace moeflux
