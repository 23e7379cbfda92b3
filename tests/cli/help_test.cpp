#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/paths.h"

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

// The words of a command as a shell would see them, up to what is not for the program.
std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (const char c : line) {
    if (quote == 0 && std::string("|<>;&#").find(c) != std::string::npos) break;
    if (quote == 0 && c == ' ') {
      in_word = false;
    } else if (c == quote || (quote == 0 && (c == '"' || c == '\''))) {
      quote = quote == 0 ? c : '\0';
      if (!in_word) words.emplace_back();
      in_word = true;
    } else {
      if (!in_word) words.emplace_back();
      in_word = true;
      words.back() += c;
    }
  }
  return words;
}

// Options and their values are looked at, nothing is run.
void expect_valid(const std::string& line) {
  std::vector<std::string> words = shell_words(line);
  const bool asks_help =
      !words.empty() && (words.back() == "--help" || words.back() == "--version");
  if (!asks_help) words.insert(words.begin(), {"config", "show", "--"});
  const Outcome outcome = run_moeflux(words);
  EXPECT_EQ(outcome.exit_code, 0) << "moeflux " << line << "\n" << outcome.err;
}

TEST(HelpTest, ExamplesAreCommandsOfThisProgram) {
  std::vector<std::string> pages = commands();
  pages.insert(pages.begin(), "");
  for (const std::string& command : pages) {
    const auto help = command.empty() ? run_moeflux({"--help"}) : run_moeflux({command, "--help"});
    std::istringstream lines(help.out.substr(help.out.find("\nExamples:\n")));
    int n_examples = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("  moeflux ", 0) != 0) continue;
      expect_valid(line.substr(10));
      ++n_examples;
    }
    EXPECT_GE(n_examples, 2) << command;
  }
}

TEST(HelpTest, DocumentsShowCommandsOfThisProgram) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files = {source_path("README.md")};
  for (const fs::directory_entry& file : fs::directory_iterator(source_path("docs")))
    if (file.path().extension() == ".md") files.push_back(file.path());
  int n_lines = 0;
  for (const fs::path& file : files) {
    std::ifstream text(file);
    bool in_code = false;
    for (std::string line; std::getline(text, line);) {
      if (line.rfind("```", 0) == 0) in_code = !in_code;
      if (!in_code) continue;
      for (const std::string start : {"moeflux ", "$ moeflux ", "build/release/moeflux "}) {
        if (line.rfind(start, 0) != 0 || line.back() == '\\') continue;
        SCOPED_TRACE(file.string());
        expect_valid(line.substr(start.size()));
        ++n_lines;
      }
    }
  }
  EXPECT_GE(n_lines, 10);
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
