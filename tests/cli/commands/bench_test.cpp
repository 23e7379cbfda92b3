#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

TEST(BenchCommandTest, PrintsATableForPeople) {
  const Outcome outcome = run_moeflux(
      {"bench", source_path("models/demo"), "-p", "16", "-n", "4", "-r", "2", "--no-measure"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("| pp16 |"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("| tg4 |"), std::string::npos) << outcome.out;
}

TEST(BenchCommandTest, PrintsJsonForScripts) {
  const Outcome outcome = run_moeflux({"bench", source_path("models/demo"), "-p", "0", "-n", "4,6",
                                       "-r", "2", "-t", "1,2", "-o", "json", "--ram", "512M"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parse_json(outcome.out, "stdout");
  ASSERT_EQ(json.size(), 4u);
  EXPECT_EQ(json[0]["test"], "tg4");
  EXPECT_EQ(json[1]["test"], "tg6");
  EXPECT_EQ(json[0]["seconds"].size(), 2u);
  EXPECT_EQ(json[0]["memory_ceiling"], 512u << 20);
  EXPECT_GT(json[0]["memory_bytes_per_second"], 0);
  EXPECT_GT(json[0]["bytes_per_token"], 0);
  EXPECT_EQ(json[0]["precision"], "fine");
  const Json& shares = json[0]["seconds_per_token_by_operation"];
  EXPECT_GT(shares["ffn"], 0);
  EXPECT_GT(shares["gated_delta"], 0);
  EXPECT_FALSE(shares.contains("latent_attention"));  // this model has none
  double sum = 0;
  for (const auto& share : shares) sum += share.get<double>();
  const double median =
      (json[0]["seconds"][0].get<double>() + json[0]["seconds"][1].get<double>()) / 2;
  EXPECT_NEAR(sum, median / 4, 0.1 * median / 4);
}

TEST(BenchCommandTest, RefusesWhatItCannotMeasure) {
  const std::string model = source_path("models/demo");
  EXPECT_EQ(run_moeflux({"bench", model, "-n", "many"}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"bench", model, "-o", "xml"}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"bench", model, "-r", "0"}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"bench", model, "--precision", "loose"}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"bench", model, "--reader", "mmap"}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"bench", model, "--lookahead", "-1"}).exit_code, 2);
  const Outcome policy = run_moeflux({"bench", model, "--cache-policy", "oracle"});
  EXPECT_NE(policy.exit_code, 0);
  EXPECT_NE(policy.err.find("learned"), std::string::npos) << policy.err;
  const Outcome isa =
      run_moeflux({"bench", model}, {.text = "", .env = {{"MOEFLUX_CPU_ISA", "mmx"}}});
  EXPECT_EQ(isa.exit_code, 1);
  EXPECT_NE(isa.err.find("scalar"), std::string::npos) << isa.err;
}

}  // namespace
}  // namespace moeflux::test
