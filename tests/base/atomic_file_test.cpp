#include "base/atomic_file.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

TEST(AtomicFileTest, ReplacesAWholeFile) {
  const TempDir directory;
  const std::string path = directory.write("f", "old");
  AtomicFile file(path);
  file.write("ne");
  EXPECT_EQ(read_text_file(path), "old");
  file.write("w");
  file.commit();
  EXPECT_EQ(read_text_file(path), "new");
  EXPECT_FALSE(file_exists(path + ".part"));
}

TEST(AtomicFileTest, LeavesNothingWithoutCommit) {
  const TempDir directory;
  const std::string path = directory.write("f", "old");
  { AtomicFile(path).write("new"); }
  EXPECT_EQ(read_text_file(path), "old");
  EXPECT_FALSE(file_exists(path + ".part"));
}

TEST(AtomicFileTest, ReusesWhatAKilledWriterLeft) {
  const TempDir directory;
  directory.write("f.part", "a long rest of something");
  AtomicFile file(directory.file("f"));
  file.write("x");
  file.commit();
  EXPECT_EQ(read_text_file(directory.file("f")), "x");
}

// Bits of the file that is being written, and of the one that comes of it.
std::pair<unsigned, unsigned> modes(const std::string& path, FileAccess access) {
  const auto mode = [](const std::string& file) {
    return static_cast<unsigned>(std::filesystem::status(file).permissions());
  };
  AtomicFile file(path, access);
  file.write("x");
  const unsigned before = mode(path + ".part");
  file.commit();
  return {before, mode(path)};
}

TEST(AtomicFileTest, PrivateOnesAreForTheirOwnerFromTheStart) {
  const TempDir directory;
  const std::string path = directory.write("f", "old");
  const mode_t umask_before = ::umask(022);
  const std::pair<unsigned, unsigned> shared{0644, 0644}, owner{0600, 0600};
  EXPECT_EQ(modes(path, FileAccess::Shared), shared);
  EXPECT_EQ(modes(path, FileAccess::Private), owner);
  directory.write("f.part", "left behind");
  EXPECT_EQ(modes(path, FileAccess::Private), owner);
  ::umask(umask_before);
}

TEST(AtomicFileTest, PrivateDirectories) {
  namespace fs = std::filesystem;
  const TempDir directory;
  fs::create_directory(directory.file("a"));
  fs::permissions(directory.file("a"), fs::perms(0755));
  make_private_directory(directory.file("a/b/c/"));
  make_private_directory(directory.file("a/b/c"));
  EXPECT_EQ(fs::status(directory.file("a")).permissions(), fs::perms(0755));
  EXPECT_EQ(fs::status(directory.file("a/b")).permissions(), fs::perms(0700));
  EXPECT_EQ(fs::status(directory.file("a/b/c")).permissions(), fs::perms(0700));
  make_private_parent("just_a_name");  // in the current directory
  expect_error(Errc::Io, {"no name"}, [] { make_private_directory(""); });
  directory.write("file", "x");
  expect_error(Errc::Io, {"/file: creating it failed"},
               [&] { make_private_directory(directory.file("file/d")); });
}

TEST(AtomicFileTest, OneWriterAtATime) {
  const TempDir directory;
  AtomicFile file(directory.file("f"));
  expect_error(Errc::Io, {"f.part", "another process"}, [&] { AtomicFile(directory.file("f")); });
  file.write("x");
  file.commit();
  EXPECT_EQ(read_text_file(directory.file("f")), "x");
}

TEST(AtomicFileTest, NamesWhatIsWrong) {
  const TempDir directory;
  expect_error(Errc::Io, {"missing/f.part", "creating"},
               [&] { AtomicFile(directory.file("missing/f")); });
  std::filesystem::create_directory(directory.file("d"));
  AtomicFile file(directory.file("d"));
  expect_error(Errc::Io, {"d", "renaming"}, [&] { file.commit(); });
}

}  // namespace
}  // namespace moeflux::test
