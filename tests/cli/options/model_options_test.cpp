#include "cli/options/model_options.h"

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

TEST(ParseSizeTest, KnowsTheUnits) {
  EXPECT_EQ(parse_size("1000", "--ram"), 1000u);
  EXPECT_EQ(parse_size("4K", "--ram"), 4096u);
  EXPECT_EQ(parse_size("512m", "--ram"), std::uint64_t{512} << 20);
  EXPECT_EQ(parse_size("6G", "--ram"), std::uint64_t{6} << 30);
  EXPECT_EQ(parse_size("1.5GiB", "--ram"), std::uint64_t{3} << 29);
  EXPECT_EQ(parse_size("2gib", "--ram"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_size("2mb", "--ram"), std::uint64_t{2} << 20);
  EXPECT_EQ(parse_size("2TB", "--ram"), std::uint64_t{2} << 40);
  EXPECT_EQ(parse_size("7B", "--ram"), 7u);
}

TEST(ParseSizeTest, RefusesTheRest) {
  for (const char* text :
       {"", "G", "6X", "6GG", "-1G", "0", "nan", "1e30", "6 G", "6GiBs", "0x10"}) {
    EXPECT_THROW(parse_size(text, "--ram"), UsageError) << text;
  }
}

TEST(ModelArgumentTest, TextIsWhatPlainlyIs) {
  for (const char* text : {"What is it", "Hi!", "What?", "x:", "<|im_end|>", "%d", "12", "3/4",
                           "-5", "caf\xC3\xA9", "line\nline", ""}) {
    EXPECT_TRUE(is_plainly_text(text, /*more_follows=*/true)) << text;
    EXPECT_TRUE(is_plainly_text(text, /*more_follows=*/false)) << text;
  }
  EXPECT_TRUE(is_plainly_text("hi", /*more_follows=*/false));
  EXPECT_FALSE(is_plainly_text("hi", /*more_follows=*/true));
}

TEST(ModelArgumentTest, NamesAndPathsAreNoText) {
  for (const char* name :
       {"qwen3.6-35b", "llama3:8b", "llama3", "model.gguf", "model.safetensors", "./x", "../x",
        "/data/x", "/data/x!", "~/x", ".", "..", "org/model", "models/", "gpt-oss"}) {
    EXPECT_FALSE(is_plainly_text(name, /*more_follows=*/true)) << name;
    EXPECT_FALSE(is_plainly_text(name, /*more_follows=*/false)) << name;
  }
}

}  // namespace
}  // namespace moeflux::cli
