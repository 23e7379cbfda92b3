#include "engine/verify/verify.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

const char* const kFixture = "tests/fixtures/qwen-fp8";
const char* const kGolden = "tests/fixtures/qwen-fp8/golden.safetensors";

std::vector<std::string> verify_fixture(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"verify", source_path(kFixture), "--golden",
                                     source_path(kGolden)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(VerifyTest, PassesWithinTheTolerance) {
  const Outcome outcome = run_moeflux(verify_fixture({}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err << outcome.out;
  for (const char* part : {"worst row", "value", "cosine", "max abs", "embedding", "layer 0",
                           "logits", "ok\n", "within 5e-05"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " is not in:\n" << outcome.out;
  }
  EXPECT_EQ(outcome.out.find("FAIL"), std::string::npos);
}

TEST(VerifyTest, FailsBeyondIt) {
  const Outcome outcome = run_moeflux(verify_fixture({"--tol", "1e-12"}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.out.find("FAIL at row "), std::string::npos);
  EXPECT_NE(outcome.out.find("checks FAILED"), std::string::npos);
}

TEST(VerifyTest, PrintsJsonForAnyChunk) {
  const Outcome outcome = run_moeflux(verify_fixture({"--json", "--chunk", "7"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err << outcome.out;
  const Json json = parse_json(outcome.out, "stdout");
  EXPECT_EQ(json["passed"], true);
  ASSERT_GT(json["checks"].size(), 5);
  for (const Json& check : json["checks"]) {
    EXPECT_EQ(check["passed"], true);
    EXPECT_LE(check["relative"], 5e-5);
    EXPECT_LE(check["value"], 1e-4);
  }
}

TEST(VerifyTest, WrongInput) {
  EXPECT_EQ(run_moeflux({"verify", source_path(kFixture)}).exit_code, 2);
  const Outcome other = run_moeflux(
      {"verify", source_path("tests/fixtures/dsv3-kimi"), "--golden", source_path(kGolden)});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_NE(other.err.find("golden.safetensors"), std::string::npos) << other.err;
}

// Ctrl-C on a large model must not wait for the end of a pass.
TEST(VerifyTest, CanBeStoppedInEveryLayer) {
  Engine engine(source_path(kFixture), {.precision = Precision::Exact});
  const std::string golden = source_path(kGolden);
  int n_calls = 0;
  const auto run = [&](int stop_at, int& n_checks) {
    n_calls = 0;
    const VerifyOptions options{.on_layer = [&, stop_at] {
      if (++n_calls == stop_at) fail(Errc::Cancelled, "stop");
    }};
    return verify_model(engine, golden, options, [&](const VerifyCheck&) { ++n_checks; });
  };
  int n_checks = 0;
  EXPECT_TRUE(run(0, n_checks));
  // One pass over the prompt and one for each of the 24 greedy tokens.
  const int n_all = n_calls, per_pass = engine.config().n_layers() + 1;
  EXPECT_GE(n_all, 25 * per_pass);
  for (const int stop_at : {1, 2, per_pass, n_all}) {
    int before = 0;
    EXPECT_THROW(run(stop_at, before), Error);
    EXPECT_EQ(n_calls, stop_at);
    EXPECT_EQ(before == 0, stop_at <= per_pass) << stop_at;
    EXPECT_LT(before, n_checks);
  }
}

TEST(VerifyTest, DemoModelsMatchTheirGoldens) {
  for (const std::string name : {"demo", "demo-mla"}) {
    const Outcome outcome = run_moeflux({"verify", source_path("models/" + name), "--golden",
                                         data_path(name + "/golden.safetensors")});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  }
}

}  // namespace
}  // namespace moeflux::test
