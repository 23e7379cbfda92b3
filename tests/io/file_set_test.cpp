#include "io/file_set.h"

#include <bit>
#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <unistd.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

TEST(FileSet, OpensEachFileTwiceWhereDirectReadsWork) {
  const TempDir dir;
  const FileSet files({dir.write("a", std::string(10000, 'a')), dir.write("b", "b")}, true);
  ASSERT_EQ(files.size(), 2);
  EXPECT_EQ(files.bytes(0), 10000u);
  EXPECT_EQ(files.bytes(1), 1u);
  EXPECT_TRUE(files.contains(1));
  EXPECT_FALSE(files.contains(2));
  EXPECT_FALSE(files.contains(-1));
  for (int file = 0; file < 2; ++file) {
    EXPECT_GE(files.buffered_fd(file), 0);
    const FileAlignment& alignment = files.alignment(file);
    EXPECT_EQ(alignment.direct(), files.direct_fd(file) >= 0);
    EXPECT_TRUE(std::has_single_bit(alignment.offset));
    EXPECT_TRUE(std::has_single_bit(alignment.memory));
    EXPECT_LE(alignment.memory, alignment.offset);
    EXPECT_GE(files.largest_block(), alignment.offset);
    if (files.direct_fd(file) < 0) continue;
    EXPECT_NE(::fcntl(files.direct_fd(file), F_GETFL) & O_DIRECT, 0);
    EXPECT_NE(::fcntl(files.direct_fd(file), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(FileSet, IsBufferedWhenAskedTo) {
  const TempDir dir;
  const FileSet files({dir.write("a", "content")}, false);
  EXPECT_EQ(files.direct_fd(0), -1);
  EXPECT_EQ(files.n_direct(), 0);
  EXPECT_FALSE(files.alignment(0).direct());
}

TEST(FileSet, FallsBackWhereTheFilesystemHasNoDirectReads) {
  const std::string path = "/proc/self/status";  // a regular file that refuses O_DIRECT
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "SKIP: no /proc";
  const FileSet files({path}, true);
  EXPECT_EQ(files.n_direct(), 0);
  EXPECT_EQ(files.direct_fd(0), -1);
}

TEST(FileSet, NamesTheFileItCannotOpen) {
  const TempDir dir;
  const std::string good = dir.write("good", "x");
  expect_error(Errc::NotFound, {"absent.bin"}, [&] {
    FileSet({good, dir.file("absent.bin")}, true);
  });
  expect_error(Errc::BadInput, {dir.path(), "not a regular file"},
               [&] { FileSet({dir.path()}, true); });
}

TEST(FileSet, ClosesWhatItOpened) {
  const TempDir dir;
  const std::string path = dir.write("a", "content");
  int first = -1;
  {
    FileSet files({path, path}, true);
    const FileSet moved = std::move(files);
    first = moved.buffered_fd(0);
    EXPECT_EQ(::fcntl(first, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  EXPECT_EQ(::fcntl(first, F_GETFD), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace moeflux::test
