#include "base/file.h"

#include <array>

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

TEST(File, ReadsAtOffsets) {
  const test::TempDir dir;
  const File file(dir.write("data", "0123456789"));
  EXPECT_EQ(file.size(), 10u);
  std::array<std::byte, 3> bytes{};
  file.read(4, bytes);
  EXPECT_EQ(bytes[0], std::byte{'4'});
  EXPECT_EQ(bytes[2], std::byte{'6'});
  file.read(10, {});
}

TEST(File, ReadingPastTheEndIsAnErrorThatNamesThePath) {
  const test::TempDir dir;
  const std::string path = dir.write("data", "0123");
  const File file(path);
  std::array<std::byte, 3> bytes{};
  try {
    file.read(2, bytes);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::Io);
    EXPECT_EQ(std::string(error.what()), path + ": ends at byte 4, but 3 bytes at 2 were expected");
  }
}

TEST(File, RefusesWhatIsNotThereOrNotAFile) {
  const test::TempDir dir;
  try {
    File file(dir.file("missing"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::NotFound);
  }
  EXPECT_THROW(File file(dir.path()), Error);
}

TEST(File, MovesKeepItOpen) {
  const test::TempDir dir;
  File first(dir.write("data", "abc"));
  const File second(std::move(first));
  std::array<std::byte, 1> byte{};
  second.read(1, byte);
  EXPECT_EQ(byte[0], std::byte{'b'});
}

TEST(File, WholeTextWithALimit) {
  const test::TempDir dir;
  const std::string content("a\0b\n", 4);
  const std::string path = dir.write("data", content);
  EXPECT_EQ(read_text_file(path), content);
  EXPECT_EQ(read_text_file(path, 4), content);
  EXPECT_THROW(read_text_file(path, 3), Error);
  EXPECT_EQ(read_text_file(dir.write("empty", "")), "");
}

TEST(File, Exists) {
  const test::TempDir dir;
  const std::string path = dir.write("data", "x");
  EXPECT_TRUE(file_exists(path));
  EXPECT_FALSE(file_exists(dir.path()));
  EXPECT_FALSE(file_exists(dir.file("missing")));
  EXPECT_TRUE(directory_exists(dir.path()));
  EXPECT_FALSE(directory_exists(path));
}

}  // namespace
}  // namespace moeflux
