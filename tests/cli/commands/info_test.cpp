#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/program.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

TEST(InfoTest, DescribesTheProgram) {
  const Outcome text = run_moeflux({"info"});
  EXPECT_EQ(text.exit_code, 0);
  for (const char* part :
       {"version", "moeflux 0.", "cpu", "backends", "MOEFLUX_MODEL", "NO_COLOR"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " is not in: " << text.out;
  }
  const Json json = parse_json(run_moeflux({"info", "--json"}).out, "stdout");
  EXPECT_TRUE(json["version"].is_string());
  EXPECT_FALSE(json["backends"].empty());
  EXPECT_GE(json["cpu"]["cores"], 1);
  EXPECT_EQ(json["environment"]["MOEFLUX_MODEL"], source_path("models/demo"));
}

TEST(InfoTest, DescribesTheDemoModel) {
  const Outcome outcome = run_moeflux({"info", "--json", source_path("models/demo")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = parse_json(outcome.out, "stdout");
  const Json config = read_json_file(source_path("models/demo/config.json"));
  const Json& text = config.contains("text_config") ? config["text_config"] : config;
  EXPECT_EQ(json["layers"], text["num_hidden_layers"]);
  EXPECT_EQ(json["hidden_size"], text["hidden_size"]);
  EXPECT_EQ(json["experts"], text["num_experts"]);
  EXPECT_EQ(json["experts_per_token"], text["num_experts_per_tok"]);
  EXPECT_EQ(json["mtp"], true);
  EXPECT_EQ(json["chat_template"], true);
  EXPECT_EQ(json["stop_tokens"].size(), 2);
  // Without the MTP head, and without the embedding, of which a token reads one row.
  EXPECT_EQ(json["parameters"], 36'485'376);
  EXPECT_EQ(json["active_parameters"], 9'500'672);
  EXPECT_GT(json["memory_floor"]["bytes"], json["dense_bytes"].get<std::int64_t>());
  const std::string readable = run_moeflux({"info", source_path("models/demo")}).out;
  EXPECT_NE(readable.find("affine 4-bit g64"), std::string::npos) << readable;
  EXPECT_NE(readable.find("<|im_end|>"), std::string::npos) << readable;
}

TEST(InfoTest, DescribesEveryFixture) {
  for (const char* name :
       {"dsv3-halfsplit", "dsv3-kimi", "dsv3-noqlora", "mlx-dsv3-embedq", "mlx-qwen-3bit",
        "mlx-qwen-mixed", "qwen-f16-yarn", "qwen-fp8", "qwen-onekv", "qwen-ratio3"}) {
    const Outcome outcome =
        run_moeflux({"info", "--json", source_path(std::string("tests/fixtures/") + name)});
    ASSERT_EQ(outcome.exit_code, 0) << name << ": " << outcome.err;
    const Json json = parse_json(outcome.out, "stdout");
    EXPECT_EQ(json["tokenizer_ids"], 0) << name;
    EXPECT_GT(json["expert_bytes"], 0) << name;
    EXPECT_GT(json["context_bytes_per_token"], 0) << name;
  }
}

TEST(InfoTest, FloorIsWhatTheEngineAsksFor) {
  // One byte less than the floor is refused, the floor itself is enough.
  const std::string model = source_path("models/demo");
  const Json json = parse_json(run_moeflux({"info", "--json", model}).out, "stdout");
  const auto floor = json["memory_floor"]["bytes"].get<std::int64_t>();
  EXPECT_EQ(run_moeflux({"run", "--ram", std::to_string(floor), "-n", "1", "hi"}).exit_code, 0);
  const Outcome refused = run_moeflux({"run", "--ram", std::to_string(floor - 1), "-n", "1", "hi"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("needs at least"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace moeflux::test
