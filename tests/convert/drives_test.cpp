#include "convert/drives.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;

constexpr std::uint64_t kMiB = 1 << 20;

FreeBytes with(std::uint64_t bytes) {
  return [bytes](const std::string&) { return bytes; };
}

TEST(DiskSpace, SumsOverTheFilesOfADrive) {
  const test::TempDir dir;
  const std::vector<DataFile> files{{dir.file("a"), 100 * kMiB}, {dir.file("b"), 50 * kMiB}};
  check_disk_space(files, with(214 * kMiB));  // 64 MiB are left over
  expect_error(Errc::Io, {dir.path(), "214.0 MiB", "213.0 MiB are free"},
               [&] { check_disk_space(files, with(213 * kMiB)); });
}

TEST(DiskSpace, WhatAFileHasCounts) {
  const test::TempDir dir;
  dir.write("a", std::string(2 * kMiB, 'x'));
  check_disk_space({{dir.file("a"), 2 * kMiB}}, with(0));  // nothing more is needed
  check_disk_space({{dir.file("a"), 3 * kMiB}}, with(65 * kMiB));
  expect_error(Errc::Io, {"65.0 MiB"}, [&] {
    check_disk_space({{dir.file("a"), 3 * kMiB}}, with(64 * kMiB));
  });
}

TEST(DiskSpace, WhatIsReplacedComesBack) {
  const test::TempDir dir;
  dir.write("old", std::string(2 * kMiB, 'x'));
  const std::vector<DataFile> files{{dir.file("new"), 3 * kMiB}};
  check_disk_space(files, with(65 * kMiB), {dir.file("old"), dir.file("missing")});
  expect_error(Errc::Io, {"67.0 MiB", "66.0 MiB are free"},
               [&] { check_disk_space(files, with(64 * kMiB), {dir.file("old")}); });
}

TEST(DiskSpace, AsksTheFilesystem) {
  const test::TempDir dir;
  EXPECT_GT(free_bytes(dir.path()), 0u);
  expect_error(Errc::Io, {"/no/such/place"}, [] { free_bytes("/no/such/place"); });
  expect_error(Errc::Io, {"/no/such/place"}, [] {
    check_disk_space({{"/no/such/place/file", 1}}, with(1));
  });
}

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
