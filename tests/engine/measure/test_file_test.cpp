#include "engine/measure/test_file.h"

#include <filesystem>
#include <set>
#include <stdexcept>

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

TEST(TestFileTest, HasNoNameAndHoldsDifferentBytes) {
  const TempDir dir;
  const TestFile test(dir.path(), {.bytes = 8u << 20});
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_EQ(test.bytes(), 8u << 20);
  const File file(test.path());
  EXPECT_EQ(file.size(), 8u << 20);
  std::set<std::string> blocks;
  for (std::uint64_t offset = 0; offset < file.size(); offset += 1u << 20) {
    std::string block(4096, '\0');
    file.read(offset, std::as_writable_bytes(std::span(block)));
    blocks.insert(std::move(block));
  }
  EXPECT_EQ(blocks.size(), 8);
}

TEST(TestFileTest, StopsWhenTimeIsUp) {
  const TempDir dir;
  const TestFile test(dir.path(), {.bytes = 1u << 30, .max_seconds = 0});
  EXPECT_EQ(test.bytes(), 4u << 20);
}

TEST(TestFileTest, ProgressMayGiveUp) {
  const TempDir dir;
  const auto give_up = [](std::uint64_t) { throw std::runtime_error("enough"); };
  EXPECT_THROW(TestFile(dir.path(), {.progress = give_up}), std::runtime_error);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(TestFileTest, NamesTheDirectoryThatRefuses) {
  expect_error(Errc::Io, {"/nonexistent/place"},
               [&] { static_cast<void>(TestFile("/nonexistent/place", {})); });
}

}  // namespace
}  // namespace moeflux::test
