// What a power cut leaves: bytes are on the disk before anything says so, and so are the names of
// the files that hold them.
#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "convert/convert.h"
#include "convert/file_calls.h"
#include "convert/output_file.h"
#include "support/paths.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::FileCall;

// The calls of one conversion, paths relative to the directory above the container.
class DurabilityTest : public testing::Test {
 protected:
  // The converter makes "new", "new/out" and the two stripes.
  void run() {
    const std::string to = dir_.file("new/out");
    ConvertOptions options;
    options.n_threads = 1;
    options.checkpoint_bytes = 50000;
    options.stripes = {{to, 1}, {dir_.file("other/stripe"), 1}};
    const std::string base = fs::canonical(dir_.file("")).string();
    const test::FileCallGuard guard([&](const FileCall& call) {
      calls_.push_back({call.name, fs::path(call.path).lexically_relative(base).string()});
      return 0;
    });
    convert(test::source_path("tests/fixtures/dsv3-halfsplit"), to, options);
  }

  using Position = std::ptrdiff_t;
  std::vector<Position> all(const std::string& name, const std::string& path) const {
    std::vector<Position> found;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i].name == name && calls_[i].path == path) {
        found.push_back(static_cast<Position>(i));
      }
    }
    return found;
  }
  Position first(const std::string& name, const std::string& path) const {
    const auto found = all(name, path);
    EXPECT_FALSE(found.empty()) << name << " " << path;
    return found.empty() ? -1 : found.front();
  }
  Position last(const std::string& name, const std::string& path) const {
    const auto found = all(name, path);
    EXPECT_FALSE(found.empty()) << name << " " << path;
    return found.empty() ? -1 : found.back();
  }

  test::TempDir dir_;
  std::vector<FileCall> calls_;
  const std::string progress_ = "new/out/convert.progress";
};

TEST_F(DurabilityTest, NamesLastBeforeTheLogSpeaksOfThem) {
  run();
  const Position first_line = first("pwrite", progress_);
  // Directories in the one above them, files in theirs.
  for (const char* directory : {".", "new", "other", "new/out", "other/stripe"}) {
    EXPECT_LT(first("fsync", directory), first_line) << directory;
  }
  for (const FileCall& call : calls_) {
    if (call.name != "fallocate" || call.path.ends_with(".part") || call.path == progress_) {
      continue;
    }
    const auto created = first("fallocate", call.path);
    const auto synced = all("fsync", fs::path(call.path).parent_path().string());
    EXPECT_TRUE(std::any_of(synced.begin(), synced.end(), [&](Position at) {
      return at > created && at < first_line;
    })) << call.path;
  }
}

TEST_F(DurabilityTest, BytesLastBeforeTheLogSpeaksOfThem) {
  run();
  std::map<std::string, bool> dirty;
  int n_lines = 0;
  for (const FileCall& call : calls_) {
    if (call.name == "pwrite" && call.path == progress_) {
      ++n_lines;
      for (const auto& [path, is_dirty] : dirty) EXPECT_FALSE(is_dirty) << path;
    } else if (call.name == "pwrite" && call.path.ends_with(".bin")) {
      dirty[call.path] = true;
    } else if (call.name == "fdatasync") {
      dirty[call.path] = false;
    }
  }
  EXPECT_GT(n_lines, 3);
  EXPECT_GT(dirty.size(), 3u);
}

TEST_F(DurabilityTest, EverythingLastsBeforeTheManifest) {
  run();
  const Position manifest = first("rename", "new/out/moeflux.json");
  for (const FileCall& call : calls_) {
    if (call.name == "pwrite") {
      EXPECT_LT(last("pwrite", call.path), last("fdatasync", call.path)) << call.path;
      EXPECT_LT(last("fdatasync", call.path), manifest) << call.path;
    }
    if (call.name == "rename" && call.path != "new/out/moeflux.json") {
      const auto synced = all("fsync", "new/out");
      EXPECT_TRUE(std::any_of(synced.begin(), synced.end(), [&](Position at) {
        return at > last("rename", call.path) && at < manifest;
      })) << call.path;
    }
  }
  EXPECT_GT(last("fsync", "new/out"), manifest);
  EXPECT_GT(first("rename", "new/out/checksums.bin"), 0);
}

TEST(NewDirectoriesTest, EveryLevelLasts) {
  const test::TempDir dir;
  const std::string base = fs::canonical(dir.file("")).string();
  std::vector<std::string> synced;
  const test::FileCallGuard guard([&](const FileCall& call) {
    if (call.name == "fsync") synced.push_back(call.path);
    return 0;
  });
  NewDirectories directories;
  directories.create(base + "/a/b/c/");
  EXPECT_TRUE(fs::is_directory(base + "/a/b/c"));
  EXPECT_EQ(synced, (std::vector<std::string>{base, base + "/a", base + "/a/b"}));
  synced.clear();
  directories.create(base + "/a/b");
  EXPECT_TRUE(synced.empty());
}

TEST(NewDirectoriesTest, WhatStaysEmptyGoes) {
  const test::TempDir dir;
  fs::create_directory(dir.file("old"));
  {
    NewDirectories directories;
    directories.create(dir.file("old/a/b"));
    directories.create(dir.file("used/c/d"));
    dir.write("used/file", "x");
  }
  EXPECT_TRUE(fs::is_empty(dir.file("old")));
  EXPECT_TRUE(fs::exists(dir.file("used/file")));
  EXPECT_FALSE(fs::exists(dir.file("used/c")));
}

}  // namespace
}  // namespace moeflux
