#include "cli/help/man_page.h"

#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

cli::CommandTree tree() {
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
  EXPECT_EQ(cli::man_page(tree(), tree().commands[0]),
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
  const std::string page = cli::man_page(tree());
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

}  // namespace
}  // namespace moeflux::test
