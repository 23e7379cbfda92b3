#include "cli/help/completion.h"

#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

cli::CommandTree tree() {
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
      cli::fish_completion(tree()),
      "# fish completion for moeflux\n"
      "complete -c moeflux -n __fish_use_subcommand -f -a run -d 'Answer: a model\\'s [way].'\n"
      "complete -c moeflux -n '__fish_seen_subcommand_from run' -s n -l predict -x -d 'at most N'\n"
      "complete -c moeflux -n '__fish_seen_subcommand_from run' -l file -r -F -d 'the user\\'s "
      "file'\n"
      "complete -c moeflux -n '__fish_seen_subcommand_from run' -l quiet -d 'say [nothing]'\n");
}

TEST(Completion, Zsh) {
  const std::string script = cli::zsh_completion(tree());
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
  const std::string script = cli::bash_completion(tree());
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
