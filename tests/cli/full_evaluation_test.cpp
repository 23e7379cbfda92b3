// The whole of the recorded evaluation, for both bundled models: every answer token for token, and
// the perplexity and MTP agreement that the reference reports.
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOEFLUX_SKIP_WHEN_SANITIZED GTEST_SKIP() << "SKIP: too slow with a sanitizer"
#else
#define MOEFLUX_SKIP_WHEN_SANITIZED static_assert(true)
#endif

namespace moeflux::test {
namespace {

struct Evaluated {
  const char* name;
  bool has_mtp;
};

class FullEvaluationTest : public testing::TestWithParam<Evaluated> {};

TEST_P(FullEvaluationTest, EveryAnswerIsIdentical) {
  MOEFLUX_SKIP_WHEN_SANITIZED;
  const std::string name = GetParam().name;
  const Outcome outcome = run_moeflux({"eval", source_path("models/" + name), "--answers",
                                       data_path(name + "/answers.jsonl"), "--json", "-v"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parse_json(outcome.out, "stdout");
  EXPECT_GE(json["answers"], 70);
  EXPECT_EQ(json["identical"], json["answers"]) << outcome.err;
  EXPECT_EQ(json["prompt_mismatches"], 0);
  EXPECT_EQ(json["right"], json["reference_right"]);
}

TEST_P(FullEvaluationTest, PerplexityIsTheReferences) {
  MOEFLUX_SKIP_WHEN_SANITIZED;
  const std::string name = GetParam().name;
  const Json want = read_json_file(data_path(name + "/report.json"));
  const Outcome outcome = run_moeflux(
      {"eval", source_path("models/" + name), "--texts", data_path("demo/heldout.json"), "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parse_json(outcome.out, "stdout");
  EXPECT_EQ(json["predictions"], want["tokens"]);
  EXPECT_NEAR(json["perplexity"].get<double>(), want["perplexity"].get<double>(), 1e-4);
  EXPECT_EQ(json.contains("mtp_agreement"), GetParam().has_mtp);
  if (GetParam().has_mtp) {
    EXPECT_NEAR(json["mtp_agreement"].get<double>(), want["mtp_agreement"].get<double>(), 2e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(BundledModels, FullEvaluationTest,
                         testing::Values(Evaluated{"demo", true}, Evaluated{"demo-mla", false}),
                         [](const auto& param) {
                           return param.param.has_mtp ? "Demo" : "DemoMla";
                         });

}  // namespace
}  // namespace moeflux::test
