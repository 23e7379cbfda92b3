#include "convert/bandwidth.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

TEST(Bandwidth, IsPositiveAndLeavesNothing) {
  const test::TempDir dir;
  const double speed = measure_read_bandwidth(dir.path());
  EXPECT_GT(speed, 1e5);
  EXPECT_LT(speed, 1e13);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Bandwidth, NamesADirectoryThatCannotBeWritten) {
  test::expect_error(Errc::Io, {"/no/such/place"},
                     [] { measure_read_bandwidth("/no/such/place"); });
}

}  // namespace
}  // namespace moeflux
