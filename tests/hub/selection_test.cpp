#include "hub/selection.h"

#include <gtest/gtest.h>

#include "source/gguf.h"
#include "support/expect_error.h"

namespace moeflux::test {
namespace {

HubListing listing(const std::vector<std::string>& paths) {
  HubListing result{.name = "a/b", .revision = "main", .commit = {}, .files = {}};
  for (const std::string& path : paths)
    result.files.push_back({.path = path, .size = 1'000'000, .blob = "x"});
  return result;
}

std::vector<std::string> chosen(const std::vector<std::string>& paths, const FileChoice& choice) {
  std::vector<std::string> names;
  for (const HubFile& file : choose_files(listing(paths), choice)) names.push_back(file.path);
  return names;
}

using Names = std::vector<std::string>;

TEST(Selection, SafetensorsWithWhatTheyNeed) {
  EXPECT_EQ(
      chosen(
          {".gitattributes", "LICENSE", "README.md", "chat_template.jinja", "config.json",
           "consolidated.safetensors", "merges.txt", "model-00001-of-00001.safetensors",
           "model.safetensors.index.json", "original/consolidated.00.pth", "original/params.json",
           "picture.png", "pytorch_model.bin", "x.gguf", "additional_chat_templates/tool.jinja"},
          {}),
      (Names{"chat_template.jinja", "config.json", "merges.txt", "model-00001-of-00001.safetensors",
             "model.safetensors.index.json", "additional_chat_templates/tool.jinja"}));
  EXPECT_EQ(chosen({"config.json", "weights.safetensors"}, {}),
            (Names{"config.json", "weights.safetensors"}));
}

TEST(Selection, OneOfTheGgufFiles) {
  const Names paths{"README.md",
                    "Q8_0/m-Q8_0-00001-of-00002.gguf",
                    "Q8_0/m-Q8_0-00002-of-00002.gguf",
                    "m-Q4_K.gguf",
                    "m-Q4_K_M.gguf",
                    "m-UD-Q4_K_M.gguf",
                    "mmproj-F16.gguf"};
  expect_error(Errc::BadInput,
               {"several", "a/b:QUANTIZATION", "976.6 KiB  m-Q4_K.gguf", "1.9 MiB  Q8_0/"},
               [&] { chosen(paths, {}); });
  const auto tagged = [&](const char* tag) { return chosen(paths, {.tag = tag}); };
  EXPECT_EQ(tagged("q4_k_m"), Names{"m-Q4_K_M.gguf"});
  EXPECT_EQ(tagged("UD-Q4_K_M"), Names{"m-UD-Q4_K_M.gguf"});
  EXPECT_EQ(tagged("Q4_K"), Names{"m-Q4_K.gguf"});
  EXPECT_EQ(tagged("Q8_0"),
            (Names{"Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00002-of-00002.gguf"}));
  expect_error(Errc::NotFound, {"no GGUF file of Q2_K", "m-Q4_K_M.gguf"}, [&] { tagged("Q2_K"); });
  EXPECT_EQ(chosen({"README.md", "m.gguf"}, {}), Names{"m.gguf"});
  EXPECT_EQ(chosen(paths, {.file = "m-Q4_K.gguf"}), Names{"m-Q4_K.gguf"});
  expect_error(Errc::NotFound, {"no file y.gguf"}, [&] { chosen(paths, {.file = "y.gguf"}); });
  expect_error(Errc::NotFound, {"m-00002-of-00002.gguf"},
               [&] { chosen({"m-00001-of-00002.gguf"}, {}); });
}

TEST(Selection, Patterns) {
  const Names paths{"a.json", "sub/b.json", "sub/c.bin", "x.safetensors"};
  EXPECT_EQ(chosen(paths, {.include = {"*.json"}}), (Names{"a.json", "sub/b.json"}));
  EXPECT_EQ(chosen(paths, {.include = {"sub/"}}), (Names{"sub/b.json", "sub/c.bin"}));
  EXPECT_EQ(chosen(paths, {.include = {"sub/"}, .exclude = {"*.bin"}}), Names{"sub/b.json"});
  expect_error(Errc::NotFound, {"no file is left", "x.safetensors"},
               [&] { chosen(paths, {.include = {"*.gguf"}}); });
}

TEST(Selection, WhatCannotBeRun) {
  expect_error(Errc::NotFound, {"only PyTorch files", "--include"}, [] {
    chosen({"config.json", "pytorch_model.bin"}, {});
  });
  EXPECT_EQ(chosen({"moeflux.json", "experts.bin", "README.md"}, {}).size(), 3u);
}

}  // namespace
}  // namespace moeflux::test
