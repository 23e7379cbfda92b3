// A hub with a model on it, a cache to pull into, and what the cache holds.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "hub/hub_server.h"
#include "hub/pull.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux::test {

inline std::string random_bytes(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::string bytes(n, '\0');
  for (char& c : bytes) c = static_cast<char>(random.bits());
  return bytes;
}

inline std::string bytes_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class HubTest : public ::testing::Test {
 protected:
  static constexpr const char* kModel = "maker/model";

  HubTest() {
    add("config.json", "{\"model_type\": \"none\"}", false);
    add("tokenizer.json", random_bytes(20'000, 1), false);
    add("model-00001-of-00002.safetensors", random_bytes(3'000'000, 2), true);
    add("model-00002-of-00002.safetensors", random_bytes(1'234'567, 3), true);
    add("README.md", "read me", false);
  }

  void add(const std::string& path, std::string content, bool lfs) {
    files_[path] = content;
    server_.add(kModel, path, {std::move(content), lfs});
  }

  std::string cache() const { return directory_.file("cache"); }
  std::string folder() const { return cache() + "/models--maker--model"; }
  std::string snapshot() const { return folder() + "/snapshots/" + server_.commit(kModel); }

  PullOptions options() const {
    PullOptions options;
    options.client.settings.endpoint = server_.url();
    options.client.settings.cache = cache();
    options.client.settings.token_place = "/home/user/token";
    options.client.retry.first_delay = std::chrono::milliseconds(1);
    options.client.retry.longest_delay = std::chrono::milliseconds(5);
    options.transfer = {.n_connections = 4, .block_bytes = 100'000};
    return options;
  }
  PullReport pull(const PullOptions& options) const {
    return pull_model({.name = kModel, .revision = "main", .tag = {}, .file = {}}, {}, options);
  }
  PullReport pull() const { return pull(options()); }

  // The snapshot has these files, whole, as links into blobs/, and nothing else.
  void expect_whole() const {
    std::map<std::string, std::string> found;
    for (const auto& each : std::filesystem::recursive_directory_iterator(snapshot())) {
      if (each.is_directory() && !each.is_symlink()) continue;
      ASSERT_TRUE(each.is_symlink()) << each.path();
      const std::string target = std::filesystem::read_symlink(each.path()).string();
      EXPECT_TRUE(target.starts_with("../")) << target;
      found[each.path().lexically_relative(snapshot()).string()] = bytes_of_file(each.path());
    }
    auto wanted = files_;
    wanted.erase("README.md");
    EXPECT_EQ(found.size(), wanted.size());
    for (const auto& [path, content] : wanted) EXPECT_TRUE(found[path] == content) << path;
    EXPECT_EQ(bytes_of_file(folder() + "/refs/main"), server_.commit(kModel));
    for (const auto& each : std::filesystem::directory_iterator(folder() + "/blobs"))
      EXPECT_NE(each.path().extension(), ".part") << each.path();
  }
  std::uint64_t wanted_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [path, content] : files_) sum += path == "README.md" ? 0 : content.size();
    return sum;
  }
  void expect_nothing_linked() const {
    EXPECT_FALSE(std::filesystem::exists(snapshot()));
    EXPECT_FALSE(std::filesystem::exists(folder() + "/refs/main"));
  }

  TempDir directory_;
  HubServer server_;
  std::map<std::string, std::string> files_;
};

}  // namespace moeflux::test
