#include "cli/help.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
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

TEST(HelpTest, VersionSaysHowItWasBuilt) {
  const Outcome outcome = run_moeflux({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out.compare(0, 10, "moeflux 0."), 0) << outcome.out;
  EXPECT_EQ(run_moeflux({"version"}).out, outcome.out);
  const Json json = parse_json(run_moeflux({"version", "--json"}).out, "stdout");
  EXPECT_EQ(outcome.out.find("moeflux " + json.at("version").get<std::string>() + " ("), 0u);
  for (const auto& [library, version] : json.at("libraries").items()) {
    EXPECT_NE(version, "") << library;
    EXPECT_NE(outcome.out.find(library + " " + version.get<std::string>()), std::string::npos)
        << outcome.out;
  }
  EXPECT_TRUE(json.at("libraries").contains("OpenSSL"));
}

cli::CommandTree man_page_tree() {
  return {.description = "It runs models.",
          .version = "moeflux 0.1.0 (abc, Release)",
          .commands = {{.name = "run",
                        .description = "Answer a prompt.",
                        .usage = "[MODEL]",
                        .options = {{{"-n", "--predict"}, "N", "at most N", "Answer"},
                                    {{"--quiet"}, "", "say 'nothing' \\ much", "General"},
                                    {{"--stop"}, "TEXT", ".end here", "Answer"}},
                        .examples = {"run -n 5"},
                        .notes = {"Beware."}}},
          .examples = {"run x"},
          .notes = {}};
}

TEST(ManPage, OfACommand) {
  EXPECT_EQ(cli::man_page(man_page_tree(), man_page_tree().commands[0]),
            ".TH MOEFLUX\\-RUN 1 \"\" \"moeflux 0.1.0\" \"User Commands\"\n"
            ".SH NAME\nmoeflux\\-run \\- answer a prompt\n"
            ".SH SYNOPSIS\n\\fBmoeflux run\\fR [\\fIOPTIONS\\fR] [MODEL]\n"
            ".SH OPTIONS\n.SS Answer\n"
            ".TP\n\\fB\\-n\\fR, \\fB\\-\\-predict\\fR \\fIN\\fR\nat most N\n"
            ".TP\n\\fB\\-\\-stop\\fR \\fITEXT\\fR\n\\&.end here\n"
            ".SS General\n.TP\n\\fB\\-\\-quiet\\fR\nsay 'nothing' \\e much\n"
            ".SH EXAMPLES\n.nf\nmoeflux run \\-n 5\n.fi\n"
            ".SH NOTES\n.nf\nBeware.\n.fi\n"
            ".SH EXIT STATUS\n.TP\n0\nsuccess\n.TP\n1\nfailure, with a message on standard error\n"
            ".TP\n2\nthe command line is wrong\n.TP\n130\ninterrupted\n"
            ".SH SEE ALSO\n\\fBmoeflux\\fR(1)\n");
}

TEST(ManPage, OfTheProgramListsItsCommands) {
  const std::string page = cli::man_page(man_page_tree());
  EXPECT_NE(page.find(".TP\n\\fBmoeflux\\-run\\fR(1)\nAnswer a prompt.\n"), std::string::npos);
  EXPECT_NE(page.find("It runs models."), std::string::npos);
}

TEST(ManPage, TheProgramWritesThemAll) {
  const TempDir directory;
  const Outcome outcome = run_moeflux({"man-page", "--directory", directory.path()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    names.insert(entry.path().filename().string());
  for (const char* name : {"moeflux.1", "moeflux-run.1", "moeflux-info.1", "moeflux-completion.1"})
    EXPECT_EQ(names.count(name), 1u) << name;
  EXPECT_EQ(names.count("moeflux-man-page.1"), 0u);  // not for users
  EXPECT_EQ(run_moeflux({"man-page", "nonsense"}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"--help"}).out.find("man-page"), std::string::npos);
}

// What the help says, the page says.
TEST(ManPage, HasEveryOptionOfTheHelp) {
  const std::string page = run_moeflux({"man-page", "run"}).out;
  for (const char* part :
       {"\\fB\\-n\\fR, \\fB\\-\\-predict\\fR \\fIN\\fR", "\\-\\-ignore\\-eos",
        "\\fB\\-h\\fR, \\fB\\-\\-help\\fR", ".SS Sampling", "moeflux run \\-\\-raw"})
    EXPECT_NE(page.find(part), std::string::npos) << part << " is not in " << page;
}

cli::CommandTree completion_tree() {
  return {.description = "",
          .version = "",
          .commands = {{.name = "run",
                        .description = "Answer: a model's [way].",
                        .usage = "",
                        .options = {{{"-n", "--predict"}, "N", "at most N", ""},
                                    {{"--file"}, "FILE", "the user's file", ""},
                                    {{"--quiet"}, "", "say [nothing]", ""}},
                        .examples = {},
                        .notes = {}}},
          .examples = {},
          .notes = {}};
}

TEST(Completion, Fish) {
  EXPECT_EQ(
      cli::fish_completion(completion_tree()),
      "# fish completion for moeflux\n"
      "complete -c moeflux -n __fish_use_subcommand -f -a run -d 'Answer: a model\\'s [way].'\n"
      "complete -c moeflux -n '__fish_seen_subcommand_from run' -s n -l predict -x -d 'at most N'\n"
      "complete -c moeflux -n '__fish_seen_subcommand_from run' -l file -r -F -d 'the user\\'s "
      "file'\n"
      "complete -c moeflux -n '__fish_seen_subcommand_from run' -l quiet -d 'say [nothing]'\n");
}

TEST(Completion, Zsh) {
  const std::string script = cli::zsh_completion(completion_tree());
  EXPECT_EQ(script.find("#compdef moeflux\n"), 0u);
  for (const char* part : {"'run:Answer\\: a model'\\''s \\[way\\].'\n", "'*-n[at most N]:N:' \\\n",
                           "'*--predict[at most N]:N:' \\\n", "'*--quiet[say \\[nothing\\]]' \\\n",
                           "'*--file[the user'\\''s file]:FILE:_files' \\\n"})
    EXPECT_NE(script.find(part), std::string::npos) << part << " is not in " << script;
}

// What bash offers for the words, the last of which is being typed.
std::string bash_offers(const std::string& script, const std::string& words) {
  const TempDir directory;
  const std::string file =
      directory.write("try.sh", script + "compopt() { :; }\nCOMP_WORDS=(" + words +
                                    ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                                    "_moeflux\necho \"${COMPREPLY[*]}\"\n");
  Program bash("/bin/bash", {file});
  const Outcome outcome = bash.finish();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

TEST(Completion, Bash) {
  const std::string script = cli::bash_completion(completion_tree());
  EXPECT_EQ(bash_offers(script, "moeflux r"), "run\n");
  EXPECT_EQ(bash_offers(script, "moeflux ''"), "run --help --version\n");
  EXPECT_EQ(bash_offers(script, "moeflux run --"), "--predict --file --quiet\n");
  EXPECT_EQ(bash_offers(script, "moeflux run --q"), "--quiet\n");
  EXPECT_EQ(bash_offers(script, "moeflux run -n --"), "\n");  // a number is to come
  const TempDir directory;
  const std::string file = directory.write("prompt.txt", ""), begun = directory.file("pro");
  EXPECT_EQ(bash_offers(script, "moeflux run --file " + begun), file + "\n");
  EXPECT_EQ(bash_offers(script, "moeflux run " + begun), file + "\n");
  EXPECT_EQ(bash_offers(script, "moeflux nonsense --"), "\n");
}

TEST(Completion, TheProgramWritesThem) {
  EXPECT_EQ(bash_offers(run_moeflux({"completion", "bash"}).out, "moeflux run --ignore"),
            "--ignore-eos\n");
  EXPECT_EQ(run_moeflux({"completion", "zsh"}).out.find("#compdef"), 0u);
  EXPECT_EQ(run_moeflux({"completion", "fish"}).out.find("# fish"), 0u);
  EXPECT_EQ(run_moeflux({"completion", "csh"}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"completion"}).exit_code, 2);
}

}  // namespace
}  // namespace moeflux::test
