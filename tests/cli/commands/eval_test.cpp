#include <cmath>

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

TEST(EvalTest, PerplexityOfTexts) {
  const TempDir directory;
  const Json list = {"The capital of Japan is Tokyo.", "x",
                     "<|im_start|>user\nWhat is 55 minus 1?<|im_end|>\n"};
  const std::string texts = directory.write("texts.json", dump_json(list));
  const Outcome outcome = run_moeflux({"eval", "--texts", texts, "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parse_json(outcome.out, "stdout");
  EXPECT_EQ(json["texts"], 3);
  EXPECT_NEAR(json["perplexity"].get<double>(), std::exp(json["nll_per_token"].get<double>()),
              1e-9);
  EXPECT_GT(json["perplexity"], 1.0);
  EXPECT_GE(json["mtp_agreement"], 0.0);
  EXPECT_LE(json["mtp_agreement"], 1.0);
  const Outcome text = run_moeflux({"eval", "--texts", texts});
  EXPECT_NE(text.out.find("perplexity     "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("MTP agreement"), std::string::npos) << text.out;
}

TEST(EvalTest, LimitTokensLeavesOutTheRest) {
  const TempDir directory;
  const std::string texts = directory.write(
      "texts.json", R"(["The capital of Japan is Tokyo.", "Hello there, friend."])");
  const auto predictions = [&](const char* option, const char* value) {
    return parse_json(run_moeflux({"eval", "--texts", texts, "--json", option, value}).out,
                      "stdout")["predictions"]
        .get<int>();
  };
  EXPECT_EQ(predictions("--limit-tokens", "3"), 4);
  EXPECT_EQ(predictions("--limit-tokens", "2"), 2);
  EXPECT_LT(predictions("--limit", "1"), predictions("--limit", "0"));
}

TEST(EvalTest, BadInput) {
  const TempDir directory;
  EXPECT_EQ(run_moeflux({"eval"}).exit_code, 2);
  const Outcome object = run_moeflux({"eval", "--texts", directory.write("a.json", "{}")});
  EXPECT_EQ(object.exit_code, 1);
  EXPECT_NE(object.err.find("list of strings"), std::string::npos) << object.err;
  const Outcome line =
      run_moeflux({"eval", "--answers", directory.write("a.jsonl", "\n{\"messages\": []}\n")});
  EXPECT_EQ(line.exit_code, 1);
  EXPECT_NE(line.err.find("a.jsonl:2"), std::string::npos) << line.err;
  EXPECT_NE(line.err.find("prompt_ids"), std::string::npos) << line.err;
}

TEST(EvalTest, AnswersAreCountedAgainstTheReference) {
  const TempDir directory;
  // A right prompt and answer, as the reference recorded them, and one with both changed.
  const Json run =
      parse_json(run_moeflux({"run", "--no-think", "--json", "What is 55 minus 1?"}).out, "stdout");
  const Json rendered =
      parse_json(run_moeflux({"template", "--no-think", "--json"},
                             {.text = R"([{"role":"user","content":"What is 55 minus 1?"}])"})
                     .out,
                 "stdout");
  Json good = {{"messages", Json::array({{{"role", "user"}, {"content", "What is 55 minus 1?"}}})},
               {"tools", nullptr},
               {"enable_thinking", false},
               {"prompt_ids", rendered["ids"]},
               {"greedy_ids", run["tokens"]},
               {"want", "55 - 1 = 54"},
               {"right", true}};
  Json changed = good;
  changed["prompt_ids"].push_back(1);
  changed["greedy_ids"][0] = 1;
  const std::string answers =
      directory.write("answers.jsonl", dump_json(good) + "\n" + dump_json(changed) + "\n");

  const Outcome outcome = run_moeflux({"eval", "--answers", answers, "--json", "-v"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parse_json(outcome.out, "stdout");
  EXPECT_EQ(json["answers"], 2);
  EXPECT_EQ(json["identical"], 1);
  EXPECT_EQ(json["prompt_mismatches"], 1);
  EXPECT_EQ(json["right"], 2);
  EXPECT_EQ(json["reference_right"], 2);
  EXPECT_NE(outcome.err.find("answer 2 differs"), std::string::npos) << outcome.err;
  EXPECT_EQ(run_moeflux({"eval", "--answers", answers, "--min-identical", "2"}).exit_code, 1);
  EXPECT_EQ(
      run_moeflux({"eval", "--answers", answers, "--min-identical", "1", "--limit", "1"}).exit_code,
      0);
}

TEST(EvalTest, DemoModelsAnswerAsTheReference) {
  for (const std::string name : {"demo", "demo-mla"}) {
    const Outcome outcome = run_moeflux({"eval", source_path("models/" + name), "--answers",
                                         data_path(name + "/answers.jsonl"), "--limit", "12",
                                         "--min-identical", "12", "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
    EXPECT_EQ(parse_json(outcome.out, "stdout")["prompt_mismatches"], 0);
  }
}

}  // namespace
}  // namespace moeflux::test
