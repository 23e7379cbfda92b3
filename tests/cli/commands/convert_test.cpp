// moeflux convert and moeflux check as a user runs them.
#include <filesystem>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

const std::string kDemo = source_path("models/demo");

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ConvertCommand, ConvertsChecksAndRuns) {
  const TempDir dir;
  const std::string to = dir.file("out");
  const Outcome converted = run_moeflux({"convert", kDemo, to});
  ASSERT_EQ(converted.exit_code, 0) << converted.err;
  EXPECT_TRUE(contains(converted.out, "576 experts, written and verified")) << converted.out;
  const Outcome checked = run_moeflux({"check", to});
  EXPECT_EQ(checked.exit_code, 0);
  EXPECT_TRUE(contains(checked.out, "ok 903 checksums")) << checked.out;
  const std::vector<std::string> question{"--no-think", "What is 12 + 30?"};
  const Outcome from_container = run_moeflux({"run", "-m", to, question[0], question[1]});
  EXPECT_EQ(from_container.out, run_moeflux({"run", "-m", kDemo, question[0], question[1]}).out);
  EXPECT_TRUE(contains(from_container.out, "42"));
  EXPECT_TRUE(contains(run_moeflux({"info", to}).out, "container"));

  const Outcome again = run_moeflux({"convert", kDemo, to});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_TRUE(contains(again.err, "--force")) << again.err;
  EXPECT_EQ(run_moeflux({"convert", "--force", kDemo, to}).exit_code, 0);
}

TEST(ConvertCommand, CheckNamesTheDamagedExpert) {
  const TempDir dir;
  const std::string to = dir.file("out");
  ASSERT_EQ(run_moeflux({"convert", kDemo, to, "--stripe", to + "=1," + to + "/b=3"}).exit_code, 0);
  const std::string file = to + "/b/experts-002.bin";
  std::string bytes = read_text_file(file);
  const std::size_t record = bytes.size() / 64;
  bytes[10 * record + 3] = static_cast<char>(bytes[10 * record + 3] ^ 1);
  dir.write("out/b/experts-002.bin", bytes);
  const Outcome text = run_moeflux({"check", to});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_TRUE(contains(text.out, "damaged language_model.model.layers.2.mlp.switch_mlp expert 10"))
      << text.out;
  EXPECT_TRUE(contains(text.out, file)) << text.out;
  const Json json = parse_json(run_moeflux({"check", "--json", to}).out, "out");
  ASSERT_EQ(json["damage"].size(), 1u);
  EXPECT_EQ(json["damage"][0]["name"], "language_model.model.layers.2.mlp.switch_mlp expert 10");
}

TEST(ConvertCommand, RequantizingReportsErrors) {
  const TempDir dir;
  const std::string to = dir.file("out");
  const Outcome outcome = run_moeflux({"convert", "--json", "--experts-bits", "3", kDemo, to});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parse_json(outcome.out, "out");
  ASSERT_EQ(json["layers"].size(), 9u);
  const Json& gate = json["layers"][0]["matrices"][0];
  EXPECT_EQ(gate["to"], "affine 3-bit g64");
  EXPECT_GT(gate["relative_error"].get<double>(), 0.1);
  EXPECT_LT(gate["relative_error"].get<double>(), 0.2);
}

TEST(ConvertCommand, AllOfAnotherLayoutCanBeRead) {
  const Outcome outcome = run_moeflux({"check", kDemo});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(contains(outcome.out, "no checksums")) << outcome.out;
}

TEST(ConvertCommand, WrongUse) {
  const TempDir dir;
  const auto usage = [&](std::vector<std::string> arguments, const std::string& part) {
    const Outcome outcome = run_moeflux(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, part)) << outcome.err;
  };
  usage({"convert", kDemo}, "the new directory");
  usage({"convert", kDemo, ""}, "is no directory");
  usage({"convert", kDemo, dir.write("file", "x")}, "is no directory");
  usage({"convert", kDemo, dir.file("x"), "--group", "32"}, "--experts-bits");
  usage({"convert", kDemo, dir.file("x"), "--stripe", "a=many"}, "DIR=3");
  usage({"convert", kDemo, dir.file("x"), "--stripe", "a,,b"}, "needs directories");
  usage({"convert", kDemo, dir.file("x"), "--stripe", "a=2,b"}, "for all directories");
  usage({"convert", kDemo, dir.file("x"), "--experts-bits", "7"},
        "--experts-bits: 7 is not one of 2, 3, 4, 5, 6, 8");
  usage({"convert", kDemo, dir.file("x"), "--experts-bits", "4", "--group", "48"},
        "--group: 48 is not one of 32, 64, 128");
  EXPECT_FALSE(std::filesystem::exists(dir.file("x")));
}

}  // namespace
}  // namespace moeflux::test
