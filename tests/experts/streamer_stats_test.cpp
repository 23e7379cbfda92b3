#include "experts/streamer_stats.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

TEST(TimeHistogram, BucketsGoByPowersOfTwo) {
  TimeHistogram times;
  for (const std::uint64_t ns : {0u, 16'383u, 16'384u, 32'767u, 32'768u}) times.add(ns);
  times.add(TimeHistogram::bound_ns(TimeHistogram::kBuckets - 2) - 1);
  times.add(TimeHistogram::bound_ns(TimeHistogram::kBuckets - 2));
  times.add(std::uint64_t{1} << 60);
  EXPECT_EQ(times.counts[0], 2u);
  EXPECT_EQ(times.counts[1], 2u);
  EXPECT_EQ(times.counts[2], 1u);
  EXPECT_EQ(times.counts[TimeHistogram::kBuckets - 2], 1u);
  EXPECT_EQ(times.counts[TimeHistogram::kBuckets - 1], 2u);
  EXPECT_EQ(times.count(), 8u);
  const TimeHistogram before = times;
  times.add(5);
  times -= before;
  EXPECT_EQ(times.counts[0], 1u);
  EXPECT_EQ(times.sum_ns, 5u);
}

}  // namespace
}  // namespace moeflux
