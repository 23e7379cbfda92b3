#include "engine/measure/measure_speed.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

TEST(MeasureMemoryTest, MeasuresSomething) {
  for (const int n : {1, 3}) {
    const MemorySpeed speed = measure_memory(n, {.bytes = 8u << 20, .seconds = 0.01});
    EXPECT_EQ(speed.n_threads, n);
    EXPECT_GT(speed.bytes_per_second, 1e7);
    EXPECT_LT(speed.bytes_per_second, 1e14);
  }
}

TEST(MeasureMemoryTest, ReadsWhatIsGiven) {
  const std::vector<std::byte> memory(5u << 20);
  // More than could be had: it takes none.
  const MemoryMeasureOptions options{
      .bytes = std::size_t{1} << 60, .seconds = 0.01, .memory = memory};
  EXPECT_GT(measure_memory(2, options).bytes_per_second, 1e7);
}

TEST(MeasureMemoryTest, FewBytesAreEnough) {
  EXPECT_GT(measure_memory(2, {.bytes = 0, .seconds = 0}).bytes_per_second, 0);
}

TEST(MeasureMemoryTest, RefusesAbsurdNumbersOfThreads) {
  expect_error(Errc::BadInput, {"0 threads"}, [&] { static_cast<void>(measure_memory(0, {})); });
  expect_error(Errc::BadInput, {"threads"}, [&] { static_cast<void>(measure_memory(100000, {})); });
}

TEST(MeasureMemoryTest, ThreadCounts) {
  EXPECT_EQ(thread_counts(1), (std::vector<int>{1}));
  EXPECT_EQ(thread_counts(8), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(thread_counts(12), (std::vector<int>{1, 2, 4, 8, 12}));
  EXPECT_EQ(thread_counts(0), (std::vector<int>{1}));
}

}  // namespace
}  // namespace moeflux::test
