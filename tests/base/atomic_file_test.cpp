#include "base/atomic_file.h"

#include <filesystem>

#include <gtest/gtest.h>

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
