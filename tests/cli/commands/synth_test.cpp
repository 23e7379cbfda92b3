// moeflux synth as a user runs it.
#include <filesystem>

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(SynthCommand, WhatItMakesRunsAndIsTheSameInEveryFormat) {
  for (const std::string like : {"tiny-qwen", "tiny-deepseek"}) {
    const TempDir dir;
    std::string answer;
    for (const std::string format : {"container", "mlx", "flash-moe"}) {
      const std::string to = dir.file(format);
      const Outcome made = run_moeflux(
          {"synth", "--like", like, "--layers", "4", "--skew", "1", "--format", format, to});
      ASSERT_EQ(made.exit_code, 0) << made.err;
      EXPECT_TRUE(contains(made.out, like + ", skew 1, seed 1")) << made.out;
      const Outcome ran =
          run_moeflux({"run", "-m", to, "--temp", "0", "-n", "12", "Tell me of the sea."});
      ASSERT_EQ(ran.exit_code, 0) << ran.err;
      EXPECT_GE(ran.out.size(), 12u);
      if (answer.empty()) answer = ran.out;
      EXPECT_EQ(ran.out, answer) << format;
    }
    EXPECT_EQ(run_moeflux({"check", dir.file("container")}).exit_code, 0);
  }
}

TEST(SynthCommand, TextIsTokenizedAndComesBack) {
  const TempDir dir;
  ASSERT_EQ(run_moeflux({"synth", "--like", "tiny-qwen", "--layers", "1", dir.path()}).exit_code,
            0);
  const std::string text = "the quick brown fox\n\xC3\xA4 \"quoted\" back\\slash 123";
  const Outcome ids = run_moeflux({"tokenize", "-m", dir.path(), "--ids", text});
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  const Outcome back = run_moeflux({"tokenize", "-m", dir.path(), "--decode", ids.out});
  ASSERT_EQ(back.exit_code, 0) << back.err;
  EXPECT_TRUE(contains(back.out, text)) << back.out;
}

TEST(SynthCommand, JsonSummary) {
  const TempDir dir;
  const Outcome outcome = run_moeflux({"synth", "--json", "--like", "tiny-qwen", "--layers", "2",
                                       "--mtp", "--seed", "5", dir.path()});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parse_json(outcome.out, "out");
  EXPECT_EQ(json["like"], "tiny-qwen");
  EXPECT_EQ(json["format"], "container");
  EXPECT_EQ(json["seed"], 5);
  EXPECT_EQ(json["experts"], 3 * 64);
  EXPECT_GT(json["bytes"].get<std::uint64_t>(), 1'000'000u);
  EXPECT_GT(json["bytes_per_second"].get<double>(), 0);
  EXPECT_EQ(json["fingerprint"].get<std::string>().size(), 16u);
  EXPECT_TRUE(contains(run_moeflux({"info", dir.path()}).out, "MTP head      yes"));
}

TEST(SynthCommand, WrongUse) {
  const TempDir dir;
  const std::string to = dir.file("x");
  const auto expect = [&](int code, std::vector<std::string> arguments, const std::string& part) {
    arguments.insert(arguments.begin(), "synth");
    const Outcome outcome = run_moeflux(arguments);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, part)) << outcome.err;
  };
  expect(2, {"--like", "tiny-qwen"}, "give the new directory");
  expect(2, {to}, "qwen3.6-35b-a3b, qwen3.5-397b-a17b, cogito-v2-671b");
  expect(2, {"--like", "tiny-qwen", "--format", "gguf", to}, "gguf");
  expect(2, {"--like", "tiny-qwen", "--skew", "9", to}, "--skew");
  expect(2, {"--like", "tiny-qwen", "--layers", "0", to}, "--layers");
  expect(2, {"--like", "tiny-qwen", "--layers", "9999", to}, "--layers");
  expect(2, {"--like", "tiny-qwen", "--mtp", "--format", "flash-moe", to}, "--mtp");
  expect(2, {"--like", "llama", to}, "--like: there is no model shape \"llama\"");
  expect(2, {"--like", "tiny-qwen", "--layers", "99", to}, "40 layers");
  EXPECT_FALSE(std::filesystem::exists(to));
}

}  // namespace
}  // namespace moeflux::test
