#include "engine/prefix/prefix_store_directory.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source/checksum.h"
#include "support/paths.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kRoot = 99;

PrefixFile file(PrefixPart part, std::int64_t end, std::uint64_t parent, std::uint64_t key,
                std::int64_t used) {
  return {kRoot, {part, end, parent, key}, 10, used};
}

std::vector<std::uint64_t> victims(const std::vector<PrefixFile>& files, std::uint64_t bytes) {
  std::vector<std::uint64_t> keys;
  for (const PrefixFile* victim : choose_victims(files, bytes)) keys.push_back(victim->name.key);
  return keys;
}

using Keys = std::vector<std::uint64_t>;

TEST(PrefixStoreScanTest, TheOldestGoFirst) {
  const std::vector<PrefixFile> files = {file(PrefixPart::State, 5, kRoot, 1, 300),
                                         file(PrefixPart::State, 6, kRoot, 2, 100),
                                         file(PrefixPart::State, 7, kRoot, 3, 200)};
  EXPECT_EQ(victims(files, 0), Keys{});
  EXPECT_EQ(victims(files, 1), Keys{2});
  EXPECT_EQ(victims(files, 10), Keys{2});
  EXPECT_EQ(victims(files, 11), (Keys{2, 3}));
  EXPECT_EQ(victims(files, 1000), (Keys{2, 3, 1}));
}

// Blocks 1 <- 2 <- 3, with states 10 after 3 (old), 11 after 1 (new).
TEST(PrefixStoreScanTest, AStateGoesBeforeTheBlocksItNeeds) {
  const std::vector<PrefixFile> files = {
      file(PrefixPart::Kv, 16, kRoot, 1, 50),   file(PrefixPart::Kv, 32, 1, 2, 51),
      file(PrefixPart::Kv, 48, 2, 3, 52),       file(PrefixPart::State, 50, 3, 10, 100),
      file(PrefixPart::State, 20, 1, 11, 1000),
  };
  // Nobody continues 3 and 2 once the state is gone; 1 is needed by the newer state.
  EXPECT_EQ(victims(files, 10), Keys{10});
  EXPECT_EQ(victims(files, 30), (Keys{10, 3, 2}));
  EXPECT_EQ(victims(files, 40), (Keys{10, 3, 2, 11}));
  EXPECT_EQ(victims(files, 50), (Keys{10, 3, 2, 11, 1}));
}

TEST(PrefixStoreScanTest, WhatCannotBeUsedGoesFirst) {
  const std::vector<PrefixFile> files = {
      file(PrefixPart::State, 5, kRoot, 1, 10),    // old, but whole
      file(PrefixPart::Kv, 32, 77, 2, 1000),       // its parent is not there
      file(PrefixPart::State, 40, 2, 3, 1001),     // nor can this be used
      file(PrefixPart::Mtp, 16, kRoot, 4, 1002)};  // belongs to nothing
  EXPECT_EQ(victims(files, 30), (Keys{3, 2, 4}));
  EXPECT_EQ(victims(files, 40), (Keys{3, 2, 4, 1}));
}

// A chain that is being completed is not evicted, nor what leads to it.
TEST(PrefixStoreScanTest, WhatIsInUseStays) {
  const std::vector<PrefixFile> files = {
      file(PrefixPart::Kv, 16, kRoot, 1, kInUse), file(PrefixPart::State, 40, 2, 3, kInUse),
      file(PrefixPart::State, 20, 1, 4, 10), file(PrefixPart::State, 21, 1, 5, 20)};
  EXPECT_EQ(victims(files, 1000), (Keys{4, 5}));
}

TEST(PrefixStoreScanTest, RowsOfTheMtpHeadGoWithTheirBlock) {
  const std::vector<PrefixFile> files = {file(PrefixPart::Kv, 16, kRoot, 1, 5),
                                         file(PrefixPart::Mtp, 16, kRoot, 1, 6),
                                         file(PrefixPart::State, 5, kRoot, 2, 10)};
  EXPECT_EQ(victims(files, 10), (Keys{1, 1}));
  EXPECT_EQ(victims(files, 21), (Keys{1, 1, 2}));
}

TEST(PrefixStoreScanTest, NamesThatContinueThemselvesEndTheScanAll) {
  const std::vector<PrefixFile> files = {file(PrefixPart::Kv, 16, 1, 1, 5),
                                         file(PrefixPart::Kv, 16, 3, 2, 5),
                                         file(PrefixPart::Kv, 16, 2, 3, 5)};
  EXPECT_LE(victims(files, 100).size(), 3u);
}

class PrefixDirectoryTest : public testing::Test {
 protected:
  PrefixDirectoryTest() { std::filesystem::create_directory(folder_); }
  void write(const std::string& name, const std::string& content = "x") const {
    std::ofstream(folder_ + "/" + name) << content;
  }
  test::TempDir directory_;
  const std::string folder_ = directory_.file(checksum_text(kRoot));
};

TEST_F(PrefixDirectoryTest, FindsItsFilesAndCountsOthers) {
  const PrefixName name{PrefixPart::Kv, 16, kRoot, 5};
  write(name.text(), "12345");
  write(PrefixName{PrefixPart::Kv, 16, kRoot, 6}.text() + ".part");
  write("README");
  write("notes.part");
  std::filesystem::create_directory(folder_ + "/" + PrefixName{PrefixPart::Kv, 16, 1, 7}.text());
  std::ofstream(directory_.file("lock")) << "";
  std::ofstream(directory_.file("written")) << "";
  std::ofstream(directory_.file("photo.jpg")) << "";
  std::filesystem::create_directory(directory_.file("others"));
  const PrefixScan scan = scan_prefix_store(directory_.path());
  ASSERT_EQ(scan.files.size(), 1u);
  EXPECT_EQ(scan.files[0].name, name);
  EXPECT_EQ(scan.files[0].root, kRoot);
  EXPECT_EQ(scan.files[0].path(directory_.path()), folder_ + "/" + name.text());
  EXPECT_EQ(scan.bytes, 5u);
  EXPECT_EQ(scan.leftovers.size(), 1u);
  EXPECT_EQ(scan.n_foreign, 5u);
  EXPECT_TRUE(scan_prefix_store(directory_.file("none")).files.empty());
  EXPECT_TRUE(scan_prefix_names(directory_.file("none"), kRoot).empty());
}

TEST_F(PrefixDirectoryTest, LeftoversGoWhenNobodyWritesThemAnymore) {
  const auto name = [](std::uint64_t key) {
    return PrefixName{PrefixPart::Kv, 16, kRoot, key}.text() + ".part";
  };
  write(name(1));
  write(name(2));
  const auto leftovers = [&] { return scan_prefix_store(directory_.path()).leftovers; };
  remove_leftovers(leftovers(), 60);
  EXPECT_EQ(leftovers().size(), 2u);  // too young

  const timespec old[2] = {{1000, 0}, {1000, 0}};
  for (const std::string& path : leftovers()) ::utimensat(AT_FDCWD, path.c_str(), old, 0);
  const int fd = ::open((folder_ + "/" + name(1)).c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  remove_leftovers(leftovers(), 60);
  EXPECT_EQ(leftovers(), std::vector{folder_ + "/" + name(1)});  // its writer is alive
  ::close(fd);
  remove_leftovers(leftovers(), 60);
  EXPECT_TRUE(leftovers().empty());
}

TEST_F(PrefixDirectoryTest, TenThousandFilesAreScannedQuickly) {
  for (std::uint64_t i = 0; i < 10000; ++i)
    write(PrefixName{i % 4 == 0 ? PrefixPart::State : PrefixPart::Kv,
                     static_cast<std::int64_t>(16 * (i % 64) + 16), i == 0 ? kRoot : i - 1, i}
              .text());
  const auto start = std::chrono::steady_clock::now();
  const std::size_t n_names = scan_prefix_names(directory_.path(), kRoot).size();
  const auto names = std::chrono::steady_clock::now();
  const PrefixScan scan = scan_prefix_store(directory_.path());
  const auto all = std::chrono::steady_clock::now();
  const std::size_t n_victims = choose_victims(scan.files, 5000).size();
  const auto chosen = std::chrono::steady_clock::now();
  EXPECT_EQ(n_names, 10000u);
  EXPECT_EQ(scan.files.size(), 10000u);
  EXPECT_GE(n_victims, 5000u);
  const auto ms = [](auto a, auto b) {
    return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(b - a).count());
  };
  RecordProperty("names_ms", ms(start, names));
  RecordProperty("scan_ms", ms(names, all));
  RecordProperty("choose_ms", ms(all, chosen));
  EXPECT_LT(ms(start, chosen), 2000);  // some 50 on an idle machine
}

}  // namespace
}  // namespace moeflux
