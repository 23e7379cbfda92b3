#include "hub/repository.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace moeflux::test {
namespace {

HubReference parse(const std::string& text) {
  HubSettings settings;
  settings.endpoint = "https://mirror.example";
  return parse_hub_reference(text, settings);
}

TEST(HubReference, WhatPeopleWrite) {
  EXPECT_EQ(parse("a/b").name, "a/b");
  EXPECT_EQ(parse("a/b").revision, "main");
  EXPECT_EQ(parse("a/b@v1.0").revision, "v1.0");
  EXPECT_EQ(parse("a/b@refs/pr/3").revision, "refs/pr/3");
  EXPECT_EQ(parse("a/b:Q4_K_M").tag, "Q4_K_M");
  EXPECT_EQ(parse("a/b:latest").tag, "");
  EXPECT_EQ(parse("models--a--b").name, "a/b");
  EXPECT_EQ(parse("hf.co/a/b:Q8_0").name, "a/b");
  EXPECT_EQ(parse("mirror.example/a/b").name, "a/b");
  EXPECT_EQ(parse("https://mirror.example/a/b").name, "a/b");
  EXPECT_EQ(parse("https://mirror.example/a/b/tree/v2").revision, "v2");
  const HubReference file = parse("https://hf.co/a/b/resolve/main/sub/x%20y.gguf?download=true");
  EXPECT_EQ(file.name, "a/b");
  EXPECT_EQ(file.file, "sub/x y.gguf");
}

TEST(HubReference, WhatIsNone) {
  for (const char* text : {"", "a", "a/b/c", "../b", "a/..", "a/b@", "a/b:", "a/b@../x", "a b/c",
                           "a/b@x//y", "-a/b", "a/.b", "a/b--c", "https://mirror.example/",
                           "https://hf.co/a/b/resolve/main/../../x.gguf"}) {
    expect_error(Errc::BadInput, {}, [&] { parse(text); });
  }
}

TEST(HubReference, ForeignAddresses) {
  HubSettings settings;
  settings.endpoint = "https://mirror.example";
  EXPECT_TRUE(is_foreign_address("https://example.org/x.gguf", settings));
  EXPECT_FALSE(is_foreign_address("https://mirror.example/a/b", settings));
  EXPECT_FALSE(is_foreign_address("https://hf.co/a/b", settings));
  EXPECT_FALSE(is_foreign_address(std::string(kDefaultEndpoint) + "/a/b", settings));
  EXPECT_FALSE(is_foreign_address("a/b", settings));
}

TEST(HubReference, AddressesOfFiles) {
  HubSettings settings;
  settings.endpoint = "http://h:1";
  EXPECT_EQ(hub_file_url(settings, "a/b", "refs/pr/1", "x y/z?.gguf").text(),
            "http://h:1/a/b/resolve/refs%2Fpr%2F1/x%20y/z%3F.gguf");
}

}  // namespace
}  // namespace moeflux::test
