#include "convert/output_file.h"

#include <csignal>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(OutputFile, WritesInAnyOrder) {
  const test::TempDir dir;
  {
    const OutputFile file(dir.file("f"), 10, OutputFile::Mode::Fresh);
    file.write(7, bytes("xyz"));
    file.write(0, bytes("abc"));
    file.sync();
    file.drop_cache();
  }
  EXPECT_EQ(read_text_file(dir.file("f")), std::string("abc\0\0\0\0xyz", 10));
}

TEST(OutputFile, ResumeKeepsWhatIsThere) {
  const test::TempDir dir;
  dir.write("f", "0123456789");
  { const OutputFile file(dir.file("f"), 12, OutputFile::Mode::Resume); }
  EXPECT_EQ(read_text_file(dir.file("f")), std::string("0123456789\0\0", 12));
  { const OutputFile file(dir.file("f"), 4, OutputFile::Mode::Resume); }
  EXPECT_EQ(read_text_file(dir.file("f")), "0123");
  { const OutputFile file(dir.file("f"), 4, OutputFile::Mode::Fresh); }
  EXPECT_EQ(read_text_file(dir.file("f")), std::string(4, '\0'));
}

TEST(OutputFile, FailuresNameTheFile) {
  expect_error(Errc::Io, {"/no/such/place/f"},
               [] { OutputFile("/no/such/place/f", 1, OutputFile::Mode::Fresh); });
  expect_error(Errc::Io, {"/no/such"}, [] { write_whole_file("/no/such/f", "x"); });
  expect_error(Errc::Io, {"/no/such"}, [] { sync_directory("/no/such"); });
}

TEST(OutputFile, WholeFilesAreReplaced) {
  const test::TempDir dir;
  write_whole_file(dir.file("f"), "one");
  write_whole_file(dir.file("f"), "");
  EXPECT_EQ(read_text_file(dir.file("f")), "");
  write_whole_file(dir.file("f"), "three");
  EXPECT_EQ(read_text_file(dir.file("f")), "three");
  EXPECT_FALSE(std::filesystem::exists(dir.file("f.part")));
}

TEST(DirectoryLock, OnlyOneHoldsIt) {
  const test::TempDir dir;
  {
    const DirectoryLock first(dir.file(""));
    test::expect_error(Errc::BadInput, {dir.file(""), "another conversion"},
                       [&] { DirectoryLock second(dir.file("")); });
  }
  const DirectoryLock third(dir.file(""));
}

TEST(DirectoryLock, GoesWithTheProcess) {
  const test::TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    const DirectoryLock lock(dir.file(""));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const DirectoryLock lock(dir.file(""));
}

TEST(DirectoryLock, NeedsADirectory) {
  test::expect_error(Errc::Io, {"/no/such/place"}, [] { DirectoryLock lock("/no/such/place"); });
}

}  // namespace
}  // namespace moeflux
