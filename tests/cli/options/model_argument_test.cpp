#include "cli/options/model_argument.h"

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

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
