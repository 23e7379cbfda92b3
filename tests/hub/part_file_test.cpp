#include "hub/part_file.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "hub/hub_fixture.h"

namespace moeflux::test {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(PartFile, GrowsInSeveralPlacesAndRemembersThem) {
  const TempDir dir;
  const std::string path = dir.file("x.part");
  {
    PartFile part(path, 25, 10);
    ASSERT_EQ(part.n_blocks(), 3u);
    EXPECT_EQ(part.end(2), 25u);
    part.append(1, as_bytes("bbbb"));
    part.append(2, as_bytes("ccccc"));
    part.append(1, as_bytes("BB"));
    EXPECT_FALSE(part.is_whole(1));
    EXPECT_TRUE(part.is_whole(2));
  }
  PartFile part(path, 25, 7);  // one that was begun keeps its blocks
  ASSERT_EQ(part.n_blocks(), 3u);
  EXPECT_EQ(part.done(0), 0u);
  EXPECT_EQ(part.done(1), 6u);
  EXPECT_EQ(part.bytes_done(), 11u);
  part.append(0, as_bytes("aaaaaaaaaa"));
  part.append(1, as_bytes("bbbb"));
  part.finish(dir.file("x"));
  EXPECT_EQ(bytes_of_file(dir.file("x")), "aaaaaaaaaabbbbBBbbbbccccc");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(PartFile, AJournalOfAnotherFileIsNotBelieved) {
  const TempDir dir;
  const std::string path = dir.file("x.part");
  const auto begun = [&] {
    PartFile part(path, 25, 10);
    part.append(0, as_bytes("aaaa"));
  };
  begun();
  EXPECT_EQ(PartFile(path, 26, 10).bytes_done(), 0u);
  begun();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_EQ(PartFile(path, 25, 10).bytes_done(), 0u);
  dir.write("x.part", random_bytes(5000, 5));
  EXPECT_EQ(PartFile(path, 25, 10).bytes_done(), 0u);
  // Lengths beyond their blocks are cut.
  begun();
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 64);
  const std::uint64_t huge = 1'000'000;
  file.write(reinterpret_cast<const char*>(&huge), sizeof huge);
  file.close();
  EXPECT_EQ(PartFile(path, 25, 10).done(0), 10u);
}

TEST(PartFile, AfterARestartOfTheMachineOnlyWhatWasSyncedCounts) {
  const TempDir dir;
  const std::string path = dir.file("x.part");
  {
    PartFile part(path, 25, 10);
    part.append(0, as_bytes("aaaa"));
  }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 24);
  file.write("00000000", 8);  // of the name of the start
  file.close();
  EXPECT_EQ(PartFile(path, 25, 10).bytes_done(), 0u);
}

TEST(PartFile, OneThatWasCutAndNotRenamedIsWhole) {
  const TempDir dir;
  const std::string path = dir.write("x.part", "0123456789");
  PartFile part(path, 10, 4);
  EXPECT_EQ(part.bytes_done(), 10u);
  part.finish(dir.file("x"));
  EXPECT_EQ(bytes_of_file(dir.file("x")), "0123456789");
}

TEST(PartFile, AFileWithoutBytes) {
  const TempDir dir;
  PartFile part(dir.file("x.part"), 0, 4);
  ASSERT_EQ(part.n_blocks(), 1u);
  EXPECT_TRUE(part.is_whole(0));
  part.finish(dir.file("x"));
  EXPECT_EQ(std::filesystem::file_size(dir.file("x")), 0u);
}

TEST(PartFile, ClearForgetsEverything) {
  const TempDir dir;
  PartFile part(dir.file("x.part"), 10, 4);
  part.append(0, as_bytes("aaaa"));
  part.clear();
  EXPECT_EQ(part.bytes_done(), 0u);
  EXPECT_EQ(PartFile(dir.file("x.part"), 10, 4).bytes_done(), 0u);
}

}  // namespace
}  // namespace moeflux::test
