#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

Json plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"plan", "--json", "--disk", "5", "--memory", "50", source_path("models/demo")});
  const Outcome outcome = run_moeflux(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return parse_json(outcome.out, "stdout");
}

TEST(PlanCommandTest, HasEveryKey) {
  const Json json = plan({"--ram", "1G"});
  for (const char* key :
       {"floor_bytes", "recommended_bytes", "dense_bytes", "expert_bytes_total", "kv_bytes",
        "scratch_bytes", "cache_slots", "hit_rate_expected", "bytes_per_token", "disk_gbps",
        "memory_gbps", "expected_tok_s", "placement", "budgets"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["ram_bytes"], 1u << 30);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["cache_slots"], json["experts_total"]);
  EXPECT_EQ(json["hit_rate_expected"]["typical"], 1.0);
  EXPECT_EQ(json["disk_gbps"], 5.0);
  EXPECT_GT(json["expected_tok_s"], 0);
}

TEST(PlanCommandTest, TheFloorIsWhatTheEngineAsksFor) {
  const auto floor = plan({})["floor_bytes"].get<std::int64_t>();
  EXPECT_EQ(run_moeflux({"run", "--ram", std::to_string(floor), "-n", "1", "hi"}).exit_code, 0);
  EXPECT_EQ(run_moeflux({"run", "--ram", std::to_string(floor - 1), "-n", "1", "hi"}).exit_code, 1);
  const Json info =
      parse_json(run_moeflux({"info", "--json", source_path("models/demo")}).out, "stdout");
  EXPECT_EQ(info["memory_floor"]["bytes"], floor);
}

TEST(PlanCommandTest, KeysAndValuesOfEveryType) {
  // Two layers of attention and the MTP head's, each with keys and values of 2 x 256.
  const auto bytes = [](const std::string& type) {
    const Json json = plan({"--kv", type, "--ctx", "4096"});
    EXPECT_EQ(json["kv_type"], type);
    return json["kv_bytes"].get<std::int64_t>();
  };
  const std::int64_t values = 3 * 2 * 4096 * 2 * 256, f16 = bytes("f16");
  EXPECT_EQ(bytes("f32") - f16, 2 * values);
  EXPECT_EQ(bytes("bf16"), f16);
  EXPECT_EQ(f16 - bytes("q8"), values - values / 16);  // a scale of 2 bytes for 32 values
  const Outcome unknown = run_moeflux({"run", "--kv", "q4", "hi"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("\"q4\" is not one of f32, f16, bf16, q8"), std::string::npos);
}

TEST(PlanCommandTest, LargerBudgetsAreNotSlower) {
  const Json json = plan({"--ctx", "512"});
  EXPECT_EQ(json["context"], 512);
  ASSERT_EQ(json["budgets"].size(), 4);
  EXPECT_EQ(json["budgets"][0]["bytes"], json["floor_bytes"]);
  EXPECT_EQ(json["budgets"][3]["bytes"], json["all_bytes"]);
  double before = 0;
  for (const Json& budget : json["budgets"]) {
    EXPECT_GE(budget["expected_tok_s"], before);
    before = budget["expected_tok_s"];
  }
}

TEST(PlanCommandTest, BelowTheFloorItSaysSo) {
  EXPECT_EQ(plan({"--ram", "1M"})["fits"], false);
  const Outcome text = run_moeflux(
      {"plan", "--ram", "1M", "--disk", "1", "--memory", "1", source_path("models/demo")});
  EXPECT_NE(text.out.find("below the floor"), std::string::npos) << text.out;
}

TEST(PlanCommandTest, MeasuresThisMachine) {
  const Outcome outcome = run_moeflux({"plan", source_path("models/demo")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {"floor", "recommended", "measured", "where things go", "expert cache",
                           "25 %", "50 %", "all", "limited by"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " is not in: " << outcome.out;
  }
}

TEST(PlanCommandTest, BadArguments) {
  const std::string model = source_path("models/demo");
  EXPECT_EQ(run_moeflux({"plan", "--disk", "0", model}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"plan", "--ctx", "0", model}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"plan", "--ram", "lots", model}).exit_code, 2);
  EXPECT_EQ(run_moeflux({"plan", "/nonexistent"}).exit_code, 1);
  EXPECT_EQ(run_moeflux({"plan", "-m", model, "another"}).exit_code, 2);
  const Outcome long_context =
      run_moeflux({"plan", "--ctx", "99999999", "--disk", "1", "--memory", "1", model});
  EXPECT_EQ(long_context.exit_code, 0);
  EXPECT_NE(long_context.err.find("more than it has"), std::string::npos) << long_context.err;
}

}  // namespace
}  // namespace moeflux::test
