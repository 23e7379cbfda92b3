// moeflux pull, and models of the hub's cache wherever a command takes a model.
#include <filesystem>

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/program.h"
#include "hub/hub_fixture.h"

namespace moeflux::test {
namespace {

namespace fs = std::filesystem;

class PullCommand : public ::testing::Test {
 protected:
  PullCommand() {
    for (const auto& each : fs::directory_iterator(source_path("tests/fixtures/qwen-onekv"))) {
      const std::string name = each.path().filename().string();
      server_.add("maker/tiny", name, {bytes_of_file(each.path()), name.ends_with(".safetensors")});
    }
  }
  Outcome run(const std::vector<std::string>& arguments,
              std::map<std::string, std::string> more = {}) const {
    std::map<std::string, std::string> env = {{"HF_ENDPOINT", server_.url()},
                                              {"HF_HUB_CACHE", directory_.file("hub")},
                                              {"HF_TOKEN", ""},
                                              {"MOEFLUX_MODELS", ""}};
    for (auto& [name, value] : more) env[name] = value;
    return run_moeflux(arguments, {.text = "", .env = env});
  }
  std::string snapshot() const {
    return directory_.file("hub/models--maker--tiny/snapshots/") + server_.commit("maker/tiny");
  }
  static void expect_has(const std::string& text, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }

  TempDir directory_;
  HubServer server_;
};

TEST_F(PullCommand, FetchesAndSaysWhatComesNext) {
  const Outcome first = run({"pull", "maker/tiny"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  expect_has(first.out, {"model     maker/tiny (main, ", "path      ", "fetched ", "/s\n",
                         "next      moeflux run maker/tiny"});
  const Outcome again = run({"pull", "maker/tiny", "--json"});
  const Json json = parse_json(again.out, "stdout");
  EXPECT_EQ(json["bytes_fetched"], 0);
  EXPECT_EQ(json["bytes_present"], json["bytes"]);
  EXPECT_EQ(json["path"], snapshot());
  EXPECT_EQ(json["commit"], server_.commit("maker/tiny"));
}

TEST_F(PullCommand, ItsNameWorksEverywhere) {
  ASSERT_EQ(run({"pull", "maker/tiny"}).exit_code, 0);
  const auto path = [&](const std::vector<std::string>& arguments,
                        std::map<std::string, std::string> more = {}) {
    const Outcome outcome = run(arguments, std::move(more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.exit_code == 0 ? parse_json(outcome.out, "stdout")["path"] : Json();
  };
  EXPECT_EQ(path({"info", "--json", "maker/tiny"}), snapshot());
  EXPECT_EQ(path({"info", "--json", "-m", "maker/tiny"}), snapshot());
  EXPECT_EQ(path({"info", "--json", "models--maker--tiny"}), snapshot());
  EXPECT_EQ(path({"info", "--json", "maker/tiny@main"}), snapshot());
  EXPECT_EQ(path({"info", "--json", "Tiny"}), snapshot());
  EXPECT_EQ(path({"show", "--json", "maker/tiny"}), snapshot());
  EXPECT_EQ(path({"info", "--json", "maker/tiny"}, {{"MOEFLUX_MODELS", directory_.file("hub")}}),
            snapshot());
  // The folder itself is a model, too.
  EXPECT_EQ(run({"info", directory_.file("hub/models--maker--tiny")}).exit_code, 0);
  for (const auto& list : {run({"ls", "--json"}), run({"ls", directory_.file("hub"), "--json"})}) {
    const Json json = parse_json(list.out, "stdout");
    ASSERT_EQ(json.size(), 1u) << list.out;
    EXPECT_EQ(json[0]["name"], "maker/tiny");
    EXPECT_EQ(json[0]["path"], snapshot());
    EXPECT_TRUE(json[0]["problem"].is_null()) << list.out;
  }
}

TEST_F(PullCommand, NearMissesAreNamed) {
  ASSERT_EQ(run({"pull", "maker/tiny"}).exit_code, 0);
  expect_has(run({"info", "maker/tinny"}).err,
             {"no such model", "did you mean maker/tiny?", "moeflux pull maker/tinny fetches it"});
  expect_has(run({"info", "-m", "tyny"}).err, {"did you mean maker/tiny?"});
  fs::create_directories(directory_.file("qwen"));
  expect_has(run({"info", directory_.file("qwan")}).err, {"did you mean", "/qwen?"});
  expect_has(run({"info", "maker/tiny:Q4_K_M"}).err, {"moeflux pull maker/tiny:Q4_K_M"});
}

TEST_F(PullCommand, PlanBeforeTheDownload) {
  const Outcome plan = run({"plan", "maker/tiny", "--json", "--disk", "1", "--memory", "10"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const Json json = parse_json(plan.out, "stdout");
  EXPECT_EQ(json["model"], "maker/tiny");
  EXPECT_FALSE(fs::exists(directory_.file("hub")));
  const std::uint64_t sent = server_.bytes_sent();
  ASSERT_EQ(run({"pull", "maker/tiny"}).exit_code, 0);
  const Json local = parse_json(
      run({"plan", "maker/tiny", "--json", "--disk", "1", "--memory", "10"}).out, "stdout");
  for (const char* key : {"family", "layout", "floor_bytes", "expert_bytes_total", "dense_bytes"})
    EXPECT_EQ(json[key], local[key]) << key;
  EXPECT_GT(server_.bytes_sent(), sent);
}

TEST_F(PullCommand, PlanOfAShape) {
  const Outcome plan = run({"plan", "--like", "qwen3.6-35b-a3b", "--ram", "8G", "--json", "--disk",
                            "2", "--memory", "30"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const Json json = parse_json(plan.out, "stdout");
  EXPECT_EQ(json["model"], "qwen3.6-35b-a3b");
  EXPECT_EQ(json["family"], "qwen3_5_moe");
  EXPECT_EQ(json["experts_total"], 40 * 256);
  EXPECT_GT(json["expert_bytes_total"].get<std::uint64_t>(), std::uint64_t{15} << 30);
  const Outcome unknown = run({"plan", "--like", "qwen9"});
  EXPECT_EQ(unknown.exit_code, 2);
  expect_has(unknown.err, {"--like", "qwen9"});
}

TEST_F(PullCommand, SaysWhatStandsInTheWay) {
  server_.set({.token = "hf_x", .error_code = "GatedRepo"});
  expect_has(run({"pull", "maker/tiny"}).err, {"401", "HF_TOKEN"});
  EXPECT_EQ(run({"pull", "maker/tiny"}, {{"HF_TOKEN", "hf_x"}}).exit_code, 0);
  EXPECT_EQ(run({"pull"}).exit_code, 2);
  EXPECT_EQ(run({"pull", "maker/tiny", "--to", "/tmp"}).exit_code, 2);
  EXPECT_EQ(run({"pull", "no name"}).exit_code, 1);
  const Outcome to_file =
      run({"pull", "maker/tiny", "--cache", "/dev/null/x"}, {{"HF_TOKEN", "hf_x"}});
  expect_has(to_file.err, {"/dev/null/x", "cannot be made"});
}

TEST_F(PullCommand, OneOfSeveralGgufFiles) {
  const std::string bytes = bytes_of_file(data_path("fixtures/gguf-mixtral/model.gguf"));
  server_.add("maker/gguf", "x-Q4_K_M.gguf", {bytes, true});
  server_.add("maker/gguf", "x-Q8_0.gguf", {bytes, true});  // the same bytes, to share a blob
  server_.add("maker/gguf", "x-Q2_K.gguf", {bytes + "end", true});
  expect_has(run({"pull", "maker/gguf"}).err,
             {"several models", "maker/gguf:QUANTIZATION", "x-Q2_K.gguf"});
  ASSERT_EQ(run({"pull", "maker/gguf:Q4_K_M"}).exit_code, 0);
  EXPECT_EQ(server_.bytes_sent(), bytes.size());
  EXPECT_EQ(run({"info", "maker/gguf"}).exit_code, 0);
  ASSERT_EQ(run({"pull", "maker/gguf:q8_0"}).exit_code, 0);
  EXPECT_EQ(server_.bytes_sent(), bytes.size());
  const Json info = parse_json(run({"info", "--json", "maker/gguf:Q8_0"}).out, "stdout");
  EXPECT_TRUE(info["path"].get<std::string>().ends_with("/x-Q8_0.gguf")) << info["path"];
  expect_has(run({"info", "maker/gguf"}).err, {"x-Q4_K_M.gguf", "x-Q8_0.gguf"});
  const Outcome plan = run({"plan", "maker/gguf:Q2_K", "--disk", "1", "--memory", "1"});
  expect_has(plan.out, {"maker/gguf:Q2_K, mixtral (gguf)"});

  const Outcome first = run({"rm", "--yes", "maker/gguf/x-Q8_0"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  expect_has(first.out, {"0 B freed"});
  EXPECT_EQ(run({"info", "maker/gguf:Q4_K_M"}).exit_code, 0);
  EXPECT_EQ(run({"rm", "--yes", "maker/gguf"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(directory_.file("hub/models--maker--gguf")));
}

TEST_F(PullCommand, TheBundledModelSaysThatItAnswers) {
  const std::vector<std::string> ask{"run", "--no-think", "What is 12 + 30?"};
  const Outcome unnamed = run(ask, {{"MOEFLUX_MODEL", ""}});
  EXPECT_EQ(unnamed.out, "12 + 30 = 42\n");
  expect_has(unnamed.err, {"no model was named", "moeflux pull ORG/NAME"});
  EXPECT_EQ(unnamed.err.find("no model was named"), unnamed.err.rfind("no model was named"));
  EXPECT_EQ(run(ask).err.find("no model was named"), std::string::npos);
}

TEST_F(PullCommand, ADryRunFetchesNothing) {
  const Outcome outcome = run({"pull", "maker/tiny", "--dry-run"});
  expect_has(outcome.out, {"config.json", "in all, of which 0 B are there"});
  EXPECT_EQ(server_.bytes_sent(), 0u);
}

TEST_F(PullCommand, RmTakesTheBlobsAsWell) {
  ASSERT_EQ(run({"pull", "maker/tiny"}).exit_code, 0);
  const Outcome outcome = run({"rm", "--yes", "maker/tiny"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  expect_has(outcome.out, {"maker/tiny: removed, "});
  EXPECT_FALSE(fs::exists(directory_.file("hub/models--maker--tiny")));
  EXPECT_EQ(run({"info", "maker/tiny"}).exit_code, 1);
}

}  // namespace
}  // namespace moeflux::test
