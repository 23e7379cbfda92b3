#include "source/shard_names.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using test::expect_error;
using test::TempDir;

TEST(ShardNames, PlainNamesStayInTheDirectory) {
  EXPECT_TRUE(is_plain_file_name("model.safetensors"));
  EXPECT_TRUE(is_plain_file_name("..model"));
  EXPECT_FALSE(is_plain_file_name(""));
  EXPECT_FALSE(is_plain_file_name("."));
  EXPECT_FALSE(is_plain_file_name(".."));
  EXPECT_FALSE(is_plain_file_name("../x"));
  EXPECT_FALSE(is_plain_file_name("/etc/passwd"));
  EXPECT_FALSE(is_plain_file_name("a\\b"));
  EXPECT_FALSE(is_plain_file_name(std::string_view("a\0b", 3)));
}

TEST(ShardNames, Numbers) {
  const auto number = parse_shard_number("model-00002-of-00013.safetensors");
  ASSERT_TRUE(number.has_value());
  EXPECT_EQ(number->index, 2);
  EXPECT_EQ(number->count, 13);
  for (const char* name :
       {"model.safetensors", "model-2.safetensors", "-of-2.safetensors", "model-1-of-.safetensors",
        "model-3-of-2.safetensors", "model-0-of-2.safetensors", "model-1-of-2.bin",
        "model-1-of-99999999999999999999.safetensors", "model-1-of-100001.safetensors"}) {
    EXPECT_FALSE(parse_shard_number(name).has_value()) << name;
  }
}

TEST(ShardNames, ListsModelFilesInOrder) {
  const TempDir dir;
  for (const char* name : {"model-b.safetensors", "model.safetensors", "adapter.safetensors",
                           "model.bin", "modeling.py", "sub/model.safetensors"}) {
    dir.write(name, "");
  }
  EXPECT_EQ(list_model_shards(dir.path()),
            (std::vector<std::string>{"model-b.safetensors", "model.safetensors"}));
  expect_error(Errc::Io, {"/absent", "cannot list"}, [&] { list_files(dir.file("absent")); });
}

TEST(ShardNames, MissingShardIsNamed) {
  const std::vector<std::string> names{"model-00001-of-00003.safetensors",
                                       "model-00003-of-00003.safetensors"};
  expect_error(Errc::NotFound, {"dir", "model-00002-of-00003.safetensors"},
               [&] { check_shards_complete("dir", names); });
  EXPECT_NO_THROW(
      check_shards_complete("dir", {"model-1-of-2.safetensors", "model-2-of-2.safetensors"}));
  EXPECT_NO_THROW(check_shards_complete("dir", {"model.safetensors"}));
}

}  // namespace
}  // namespace moeflux
