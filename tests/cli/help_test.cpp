#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cli/program.h"

namespace moeflux::test {
namespace {

// The commands that --help lists.
std::vector<std::string> commands() {
  std::istringstream help(run_moeflux({"--help"}).out);
  std::vector<std::string> names;
  std::string line;
  while (std::getline(help, line) && line != "Commands:") {
  }
  while (std::getline(help, line) && !line.empty()) {
    names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return names;
}

TEST(HelpTest, EveryCommandHasHelpWithExamples) {
  EXPECT_GE(commands().size(), 7);
  for (const std::string& command : commands()) {
    const Outcome outcome = run_moeflux({command, "--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(outcome.out.find("Usage: moeflux " + command), std::string::npos) << outcome.out;
    const std::size_t examples = outcome.out.find("\nExamples:\n  moeflux ");
    ASSERT_NE(examples, std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("\n  moeflux ", examples + 12), std::string::npos)
        << "two examples: " << outcome.out;
    EXPECT_EQ(run_moeflux({command, "-h"}).out, outcome.out);
    EXPECT_EQ(run_moeflux({"help", command}).out, outcome.out);
  }
}

TEST(HelpTest, LinesFitATerminal) {
  for (const std::string& command : commands()) {
    std::istringstream help(run_moeflux({command, "--help"}).out);
    for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 110) << line;
  }
}

TEST(HelpTest, HeadingsAreWordsForPeople) {
  const std::regex name_in_code("[A-Za-z]*[a-z][A-Z][A-Za-z]*:");
  for (const std::string& command : commands()) {
    std::istringstream help(run_moeflux({command, "--help"}).out);
    for (std::string line; std::getline(help, line);)
      EXPECT_FALSE(std::regex_match(line, name_in_code)) << command << ": " << line;
  }
}

TEST(HelpTest, TopLevelListsCommandsAndEnvironment) {
  const Outcome outcome = run_moeflux({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* part :
       {"run ", "info ", "tokenize ", "template ", "verify ", "eval ", "Examples:", "MOEFLUX_MODEL",
        "MOEFLUX_RAM", "MOEFLUX_THREADS", "NO_COLOR"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " is not in: " << outcome.out;
  }
}

TEST(HelpTest, VersionIsOneLine) {
  const Outcome outcome = run_moeflux({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out.compare(0, 10, "moeflux 0."), 0) << outcome.out;
  EXPECT_EQ(outcome.out.find('\n'), outcome.out.size() - 1);
  EXPECT_EQ(run_moeflux({"version"}).out, outcome.out);
}

}  // namespace
}  // namespace moeflux::test
