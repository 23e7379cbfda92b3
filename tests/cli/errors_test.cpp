// What a user sees when something is wrong: one line that says what and where, and the right exit
// code.
#include <filesystem>

#include <gtest/gtest.h>

#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

void expect_failure(const Outcome& outcome, int exit_code, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.compare(0, 16, "moeflux: error: "), 0) << outcome.err;
  for (const std::string& part : parts) {
    EXPECT_NE(outcome.err.find(part), std::string::npos)
        << "\"" << part << "\" is not in: " << outcome.err;
  }
}

TEST(ErrorsTest, MissingModel) {
  expect_failure(run_moeflux({"run", "-m", "/no/such/model", "hi"}), 1, {"/no/such/model"});
  expect_failure(run_moeflux({"run", "./no-such-model", "hi"}), 1,
                 {"./no-such-model: no such model"});
  expect_failure(
      run_moeflux({"info", "nothing"}), 1,
      {"nothing: no such model", "no directory", "no .safetensors or .gguf file", "--models DIR"});
  expect_failure(
      run_moeflux({"run", "hi"}, {.text = "", .env = {{"MOEFLUX_MODEL", "/no/such/model"}}}), 1,
      {"/no/such/model"});
}

// It must not become a prompt that another model answers.
TEST(ErrorsTest, WhatLooksLikeAModelAndIsNone) {
  const TempDir directory;
  const std::string gguf = directory.write("model.gguf", "GGUF");
  for (const std::string command : {"run", "tokenize"}) {
    for (const std::string first : {"qwen3.6-35b", "models/typo", "mixtral", "What"})
      expect_failure(run_moeflux({command, first, "Hi"}), 1,
                     {first + ": no such model", "no directory", "-m MODEL"});
    for (const std::string only : {"./nothing", "/data/x", "~/x", "model.safetensors", "model.gguf",
                                   "qwen3.6-35b", "llama3", "Qwen/Qwen3-30B-A3B"})
      expect_failure(run_moeflux({command, only}), 1, {only + ": no such model", "-m MODEL"});
    expect_failure(run_moeflux({command, gguf, "Hi"}), 1, {gguf, "truncated or damaged"});
    expect_failure(run_moeflux({command, "--models", source_path("models"), "demo-mal", "Hi"}), 1,
                   {"'demo-mal' not found", "did you mean demo-mla?", "-m MODEL"});
  }
  expect_failure(run_moeflux({"trace", "record", "-o", directory.file("t"), "mixtral", "Hi"}), 1,
                 {"mixtral: no such model"});
  EXPECT_FALSE(std::filesystem::exists(directory.file("t")));
  expect_failure(run_moeflux({"run", "-m", "mixtral", "Hi"}), 1, {"mixtral: no such model"});
  expect_failure(run_moeflux({"chat", "mixtral"}), 1, {"mixtral: no such model"});
  expect_failure(run_moeflux({"chat", "--resume", "mixtral", "name"}), 1,
                 {"mixtral: no such model"});
  expect_failure(run_moeflux({"info", gguf}), 1, {"truncated or damaged"});
  expect_failure(run_moeflux({"info", directory.write("notes.txt", "x")}), 1,
                 {"notes.txt: no such model: it is a file"});
  expect_failure(run_moeflux({"info", "-m", source_path("models/demo"), "other"}), 2,
                 {"model given twice: other and -m"});
}

TEST(ErrorsTest, NoBundledModel) {
  const TempDir directory;
  std::filesystem::create_directories(directory.file("a/b"));
  std::filesystem::copy_file(program_path(), directory.file("a/b/moeflux"));
  const Outcome outcome = Program(directory.file("a/b/moeflux"), {"run", "hi"},
                                  {.text = "", .env = {{"MOEFLUX_MODEL", ""}}})
                              .finish();
  expect_failure(outcome, 1, {"no model given", "-m MODEL"});
  expect_failure(Program(directory.file("a/b/moeflux"), {"check", "typo"},
                         {.text = "", .env = {{"MOEFLUX_MODEL", ""}}})
                     .finish(),
                 1, {"typo: no such model"});
}

TEST(ErrorsTest, UnknownOptionsAndCommandsSuggestTheRightOne) {
  expect_failure(run_moeflux({"run", "--tmep", "1", "hi"}), 2,
                 {"unknown option --tmep", "--temp?", "moeflux run --help"});
  expect_failure(run_moeflux({"run", "--frobnicate", "hi"}), 2, {"unknown option --frobnicate"});
  expect_failure(run_moeflux({"run", "-z", "hi"}), 2, {"unknown option -z", "--"});
  expect_failure(run_moeflux({"tokenise", "hi"}), 2,
                 {"unknown command tokenise", "tokenize?", "moeflux --help"});
  expect_failure(run_moeflux({"xyzzy"}), 2, {"unknown command xyzzy"});
  expect_failure(run_moeflux({"run", "-ngl", "99", "hi"}), 2, {"unknown option -ngl", "--vram"});
  expect_failure(run_moeflux({"run", "-hf", "a/b"}), 2, {"unknown option -hf", "moeflux pull"});
  expect_failure(run_moeflux({"run", "--n-gpu-layers=99"}), 2, {"unknown option --n-gpu-layers"});
  expect_failure(run_moeflux({"run", "--num-parallel", "2"}), 2,
                 {"unknown option --num-parallel", "--parallel", "run does not have"});
  expect_failure(run_moeflux({"quantize"}), 2, {"unknown command quantize", "convert?"});
}

TEST(ErrorsTest, WordsOfOtherProgramsThatMeanTheSame) {
  const std::vector<std::string> ours{"run", "--no-think", "--temp", "1", "-s",
                                      "3",   "-n",         "4",      "hi"};
  const std::vector<std::string> theirs{
      "run", "--no-think", "--temperature=1", "-s", "3", "--max-tokens", "4", "hi"};
  const Outcome outcome = run_moeflux(theirs);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, run_moeflux(ours).out);
  const std::vector<std::string> where{"--models", source_path("models")};
  EXPECT_EQ(run_moeflux({"list", where[0], where[1]}).out,
            run_moeflux({"ls", where[0], where[1]}).out);
  expect_failure(run_moeflux({}), 2, {"no command given"});
}

TEST(ErrorsTest, OptionsWithBadValues) {
  expect_failure(run_moeflux({"run", "--ram", "much", "hi"}), 2, {"--ram", "moeflux run --help"});
  expect_failure(run_moeflux({"run", "-n", "many", "hi"}), 2,
                 {"--predict", "\"many\"", "whole number"});
  expect_failure(run_moeflux({"run", "--temp", "hot", "hi"}), 2, {"--temp", "\"hot\"", "number"});
  expect_failure(run_moeflux({"run", "hi", "-n"}), 2, {"-n needs a value"});
  expect_failure(run_moeflux({"run", "--json=yes", "hi"}), 2, {"--json takes no value"});
  expect_failure(run_moeflux({"run", "--ram", "lots", "hi"}), 2, {"--ram", "\"lots\"", "6G"});
  expect_failure(run_moeflux({"run", "--color", "blue", "hi"}), 2,
                 {"--color", "\"blue\"", "auto, on, off"});
  for (const char* command :
       {"info", "tokenize", "template", "convert", "ls", "ps", "show", "plan"})
    expect_failure(run_moeflux({command, "--color", "blue"}), 2, {"--color", "auto, on, off"});
  expect_failure(run_moeflux({"run", "--cache-policy", "best", "hi"}), 2,
                 {"--cache-policy", "\"best\"", "lru"});
  for (const char* command : {"run", "template", "chat"})
    expect_failure(
        run_moeflux({command, "--kwargs", "{", "-m", source_path("models/demo")}, {.text = "[]"}),
        2, {"--kwargs", "not valid JSON"});
  expect_failure(run_moeflux({"plan", source_path("models/demo"), "-t", "99999"}), 2,
                 {"--threads"});
  expect_failure(run_moeflux({"serve", "--host", ""}), 2, {"--host"});
  expect_failure(run_moeflux({"run", "--logit-bias", "5", "hi"}), 2, {"--logit-bias", "ID=VALUE"});
  expect_failure(run_moeflux({"run", "-t", "-3", "hi"}), 2, {"--threads"});
  // Found before the model is looked for.
  for (const auto& [option, value] :
       std::vector<std::pair<std::string, std::string>>{{"--temp", "-1"},
                                                        {"--temp", "nan"},
                                                        {"--top-k", "-2"},
                                                        {"--top-k", "99999999999"},
                                                        {"--top-p", "1.5"},
                                                        {"--min-p", "-0.1"},
                                                        {"--typical", "0"},
                                                        {"--repeat-penalty", "0"},
                                                        {"--presence-penalty", "3"},
                                                        {"--frequency-penalty", "-3"},
                                                        {"--logit-bias", "-5=1"},
                                                        {"--logit-bias", "5=nan"},
                                                        {"--logit-bias", "5"}}) {
    expect_failure(run_moeflux({"run", "-m", "/no/such/model", option, value, "hi"}), 2, {option});
  }
  expect_failure(run_moeflux({"run", "--raw", "--no-think", "hi"}), 2, {"--raw"});
  expect_failure(run_moeflux({"run", "--special", "hi"}), 2, {"--special needs --raw"});
  expect_failure(run_moeflux({"run", "-f", "x", "hi"}), 2, {"text given twice"});
  expect_failure(run_moeflux({"info", source_path("models/demo"), "more"}), 2,
                 {"unexpected argument \"more\""});
}

TEST(ErrorsTest, TinyStacks) {
  const auto limited = [](const std::string& limit) {
    return Program("/bin/sh",
                   {"-c", limit + " && exec \"$0\" run --no-think -t 2 'What is 55 minus 1?'",
                    program_path()},
                   with_demo_model())
        .finish();
  };
  expect_failure(limited("ulimit -s 256"), 1, {"the stack is limited", "ulimit -s 8192"});
  const Outcome raised = limited("ulimit -S -s 256");  // the program may raise it again itself
  EXPECT_EQ(raised.exit_code, 0) << raised.err;
  EXPECT_EQ(raised.out, "55 - 1 = 54\n");
}

TEST(ErrorsTest, PromptTooLongSaysBothNumbers) {
  expect_failure(run_moeflux({"run", "--no-think", "-c", "10", "What is 55 minus 1?"}), 1,
                 {"23 tokens", "10", "-c"});
}

TEST(ErrorsTest, EmptyPrompt) {
  expect_failure(run_moeflux({"run", ""}), 1, {"the prompt is empty"});
  expect_failure(run_moeflux({"run", " \n "}), 1, {"the prompt is empty"});
  expect_failure(run_moeflux({"run"}), 1, {"the prompt is empty"});  // nothing on standard input
}

TEST(ErrorsTest, InvalidUtf8IsRefusedWithItsOffset) {
  const std::string bad = "caf\xE9 au lait";
  expect_failure(run_moeflux({"run", bad}), 1, {"not valid UTF-8 at byte 3 (0xe9)"});
  expect_failure(run_moeflux({"run"}, {.text = bad}), 1,
                 {"standard input: not valid UTF-8 at byte 3"});
  const TempDir directory;
  const std::string file = directory.write("bad.txt", bad);
  expect_failure(run_moeflux({"run", "-f", file}), 1, {file, "not valid UTF-8 at byte 3"});
  expect_failure(run_moeflux({"run", "--system", bad, "hi"}), 1,
                 {"--system: not valid UTF-8 at byte 3"});
}

TEST(ErrorsTest, TooLittleMemorySaysWhatIsNeeded) {
  const Outcome refused = run_moeflux({"run", "--ram", "1M", "hi"});
  expect_failure(refused, 1, {"needs at least", "1.0 MiB", "-c"});
  // What it asks for is enough.
  const std::string before = "needs at least ";
  for (const char* context : {"100", "333", "1000"}) {
    const Outcome again = run_moeflux({"run", "--ram", "1M", "-c", context, "-n", "1", "hi"});
    const std::size_t at = again.err.find(before) + before.size();
    const std::string enough = again.err.substr(at, again.err.find(" MiB", at) - at) + "M";
    const Outcome outcome = run_moeflux({"run", "--ram", enough, "-c", context, "-n", "1", "hi"});
    EXPECT_EQ(outcome.exit_code, 0) << enough << ": " << outcome.err;
  }
}

TEST(ErrorsTest, AModelWithoutATokenizerCannotAnswer) {
  expect_failure(run_moeflux({"run", source_path("tests/fixtures/qwen-fp8"), "hi"}), 1,
                 {"no tokenizer"});
}

TEST(ErrorsTest, MissingInputFiles) {
  expect_failure(run_moeflux({"run", "-f", "/no/such/file"}), 1, {"/no/such/file"});
  expect_failure(run_moeflux({"run", "--messages", "/no/such/file"}), 1, {"/no/such/file"});
  const TempDir directory;
  const std::string file = directory.write("chat.json", "{\"role\": 1}");
  expect_failure(run_moeflux({"run", "--messages", file}), 1, {file, "messages"});
}

TEST(ErrorsTest, AFullDiskIsReported) {
  const Outcome outcome =
      Program("/bin/sh", {"-c", "exec \"$0\" info > /dev/full", program_path()}, with_demo_model())
          .finish();
  expect_failure(outcome, 1, {"cannot write to standard output"});
}

}  // namespace
}  // namespace moeflux::test
