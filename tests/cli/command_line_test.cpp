#include "cli/command_line.h"

#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

namespace moeflux::cli {
namespace {

// A command with one option of each kind, and what it was given.
struct Fixture {
  CommandLine line{"test", "1"};
  bool quiet = false, verbose = false;
  std::int64_t number = 0;
  std::optional<double> real;
  std::optional<std::string> text;
  std::vector<std::string> list, arguments;

  Fixture() {
    Command& command = line.add("go", "Go.");
    command.arguments("[X...]", 3)
        .flag("-q,--quiet", quiet, "quiet")
        .flag("-v,--verbose", verbose, "verbose")
        .option("-n,--number", number, "N", "number")
        .option("--real", real, "X", "real")
        .option("--text", text, "T", "text")
        .spelling("-txt", "--text")
        .option("--list", list, "T", "list");
    command.run([this](const std::vector<std::string>& given) {
      arguments = given;
      return 7;
    });
  }

  int run(std::vector<std::string> given) {
    given.insert(given.begin(), "go");
    return line.run(given);
  }
};

TEST(CommandLineTest, ParsesEveryNotation) {
  Fixture f;
  EXPECT_EQ(
      f.run({"-qv", "a", "-n5", "--real=0.5", "--text", "-x", "--list", "[1,2]", "--list=b", "++"}),
      7);
  EXPECT_TRUE(f.quiet);
  EXPECT_TRUE(f.verbose);
  EXPECT_EQ(f.number, 5);
  EXPECT_EQ(f.real, 0.5);
  EXPECT_EQ(f.text, "-x");
  EXPECT_EQ(f.list, (std::vector<std::string>{"[1,2]", "b"}));
  EXPECT_EQ(f.arguments, (std::vector<std::string>{"a", "++"}));
}

TEST(CommandLineTest, ValuesMayBeEmptyAndTheLastOneCounts) {
  Fixture f;
  f.run({"--text=", "-n", "1", "-n", "2", "-qn", "-3", "-"});
  EXPECT_EQ(f.text, "");
  EXPECT_EQ(f.number, -3);
  EXPECT_EQ(f.arguments, std::vector<std::string>{"-"});
}

TEST(CommandLineTest, OtherSpellings) {
  Fixture f;
  f.run({"-txt", "hello"});
  EXPECT_EQ(f.text, "hello");
}

TEST(CommandLineTest, NothingAfterTwoDashesIsAnOption) {
  Fixture f;
  f.run({"-q", "--", "--text", "[a,b]", "-5"});
  EXPECT_FALSE(f.text.has_value());
  EXPECT_EQ(f.arguments, (std::vector<std::string>{"--text", "[a,b]", "-5"}));
}

TEST(CommandLineTest, RefusesWhatItDoesNotKnow) {
  const auto message = [](const std::vector<std::string>& arguments) -> std::string {
    Fixture f;
    try {
      f.run(arguments);
    } catch (const UsageError& error) {
      EXPECT_EQ(error.command(), "go");
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message({"--txet", "x"}), "unknown option --txet; did you mean --text?");
  EXPECT_EQ(message({"--unlike"}), "unknown option --unlike");
  EXPECT_EQ(message({"-x"}), "unknown option -x; write -- before text that starts with a dash");
  EXPECT_EQ(message({"--text"}), "--text needs a value");
  EXPECT_EQ(message({"--quiet=1"}), "--quiet takes no value");
  EXPECT_EQ(message({"-n", "5x"}), "--number: \"5x\" is not a whole number");
  EXPECT_EQ(message({"-n", "99999999999999999999"}),
            "--number: \"99999999999999999999\" is not a whole number");
  EXPECT_EQ(message({"--real", "nan"}), "--real: \"nan\" is not a number");
  EXPECT_EQ(message({"a", "b", "c", "d"}), "unexpected argument \"d\"");
}

}  // namespace
}  // namespace moeflux::cli
