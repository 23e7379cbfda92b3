#include "source/hub_cache.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "support/paths.h"

namespace moeflux::test {
namespace {

namespace fs = std::filesystem;

TEST(HubCache, Names) {
  for (const char* name : {"a/b", "Qwen/Qwen3.6-35B-A3B", "gpt2", "a_b/c.d-e"})
    EXPECT_TRUE(is_hub_name(name)) << name;
  for (const char* name : {"", "/", "a/", "/b", "a/b/c", "..", "a/..", "./a", "-a/b", "a b/c",
                           "a--b/c", "a/b\n", "a\\b"})
    EXPECT_FALSE(is_hub_name(name)) << name;
  EXPECT_FALSE(is_hub_path("gpt2"));
  EXPECT_EQ(hub_folder("a/b-c"), "models--a--b-c");
  EXPECT_EQ(hub_name("models--a--b-c"), "a/b-c");
  EXPECT_EQ(hub_name("models--gpt2"), "gpt2");
  EXPECT_EQ(hub_name("datasets--a--b"), std::nullopt);
  EXPECT_EQ(hub_name("models--a--b--c"), std::nullopt);
  EXPECT_EQ(hub_name("models--"), std::nullopt);
  EXPECT_EQ(hub_name("models--..--x"), std::nullopt);
  EXPECT_EQ(without_hub_host("hf.co/a/b"), "a/b");
  EXPECT_EQ(without_hub_host("hf.co"), "hf.co");
  EXPECT_EQ(without_hub_host("a/b"), "a/b");
}

TEST(HubCache, PathsStayInside) {
  for (const char* path : {"a", "a/b.c", "..a/b..", "ü"}) EXPECT_TRUE(is_hub_file(path)) << path;
  for (const char* path : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a\\b", "a\nb", "\xff"})
    EXPECT_FALSE(is_hub_file(path)) << path;
  EXPECT_FALSE(is_hub_file(std::string(300, 'a')));
  EXPECT_FALSE(is_hub_file(std::string("a\0b", 3)));
  EXPECT_TRUE(is_hub_revision("refs/pr/1"));
  EXPECT_FALSE(is_hub_revision("../x"));
}

TEST(HubCache, Snapshots) {
  const TempDir cache;
  const std::string folder = cache.file("models--a--b"), one(40, '1'), two(40, '2');
  fs::create_directories(folder + "/refs");
  fs::create_directories(folder + "/snapshots/" + one);
  fs::create_directories(folder + "/snapshots/" + two);
  fs::last_write_time(folder + "/snapshots/" + one,
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_TRUE(is_hub_folder(folder));
  EXPECT_TRUE(is_hub_folder(folder + "/"));
  EXPECT_EQ(hub_snapshot(folder), folder + "/snapshots/" + two);  // the newest
  cache.write("models--a--b/refs/main", one + "\n");
  EXPECT_EQ(hub_snapshot(folder), folder + "/snapshots/" + one);
  EXPECT_EQ(hub_snapshot(folder, "main"), folder + "/snapshots/" + one);
  EXPECT_EQ(hub_snapshot(folder, two), folder + "/snapshots/" + two);
  EXPECT_EQ(hub_snapshot(folder, "v1"), std::nullopt);
  EXPECT_EQ(hub_snapshot(folder, std::string(40, '3')), std::nullopt);
  EXPECT_EQ(hub_snapshot(folder, "../../x"), std::nullopt);
  cache.write("models--a--b/refs/main", "../../../etc");
  EXPECT_EQ(hub_snapshot(folder, "main"), std::nullopt);
  EXPECT_EQ(hub_cache_names(cache.path()), std::vector<std::string>{"a/b"});
  EXPECT_TRUE(hub_cache_names(cache.file("none")).empty());
  EXPECT_EQ(find_in_hub_cache(cache.path(), "a/b@" + two), folder + "/snapshots/" + two);
  EXPECT_EQ(find_in_hub_cache(cache.path(), "a/c"), std::nullopt);
  EXPECT_EQ(find_in_hub_cache(cache.path(), "../a"), std::nullopt);
}

}  // namespace
}  // namespace moeflux::test
