// Several models behind one server, as clients of each dialect see them.
#include <deque>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "server/pool_server.h"

namespace moeflux::test {
namespace {

using namespace std::chrono_literals;

std::string content_of(const ClientResponse& response) {
  if (response.status != 200) return response.body;
  return response.json().at("choices").at(0).at("message").at("content");
}

// Loads of "demo" wait until somebody opens it.
class Gate {
 public:
  PoolEvents events() {
    return {.loading = [this](const CatalogEntry& entry) {
      if (entry.name != "demo") return;
      began_.set_value();
      open_.get_future().wait();
    }};
  }
  void wait_for_load() { began_.get_future().wait(); }
  void open() { open_.set_value(); }

 private:
  std::promise<void> began_, open_;
};

TEST(SeveralModelsTest, AreLoadedByName) {
  PoolServer server;
  EXPECT_EQ(server.get("/health").body, R"({"status":"ok"})");
  const ClientResponse demo = server.post("/v1/chat/completions", sum_for("demo"));
  EXPECT_EQ(content_of(demo), "12 + 30 = 42");
  EXPECT_EQ(demo.json().at("model"), "demo");
  EXPECT_EQ(server.loaded(), "demo");
  const ClientResponse mla = server.post("/v1/chat/completions", sum_for("mla:latest"));
  EXPECT_EQ(content_of(mla), "12 + 30 = 42");
  EXPECT_EQ(mla.json().at("model"), "org/mla");
  EXPECT_EQ(server.loaded(), "org/mla");
  // None named: the one in memory.
  EXPECT_EQ(server.post("/v1/chat/completions", sum_for("")).json().at("model"), "org/mla");
}

TEST(SeveralModelsTest, EveryDialectFindsItsModel) {
  PoolServer server;
  const Json messages = Json::array({{{"role", "user"}, {"content", "What is 12 + 30?"}}});
  const Json message = server
                           .post("/v1/messages", {{"model", "org/mla"},
                                                  {"max_tokens", 100},
                                                  {"temperature", 0},
                                                  {"messages", messages}})
                           .json();
  EXPECT_EQ(message.at("model"), "org/mla");
  EXPECT_EQ(message.at("content").back().at("text"), "12 + 30 = 42");
  const Json response =
      server
          .post("/v1/responses",
                {{"model", "mla"}, {"input", "What is 12 + 30?"}, {"temperature", 0}})
          .json();
  EXPECT_EQ(response.at("model"), "org/mla");
  const Json chat = server
                        .post("/api/chat", {{"model", "mla"},
                                            {"stream", false},
                                            {"think", false},
                                            {"options", {{"temperature", 0}}},
                                            {"messages", messages}})
                        .json();
  EXPECT_EQ(chat.at("model"), "mla");
  EXPECT_EQ(chat.at("message").at("content"), "12 + 30 = 42");
  const Json tokens = server.post("/tokenize", {{"model", "mla"}, {"content", "12 + 30"}}).json();
  EXPECT_EQ(tokens.at("tokens"), (Json{16, 17, 420, 220, 18, 15}));
  EXPECT_EQ(server.get("/props?model=mla").json().at("model_alias"), "org/mla");
  EXPECT_EQ(server.pool().stats().n_loads, 1u);
}

TEST(SeveralModelsTest, AnUnknownModelIsNotFoundInEveryDialect) {
  PoolServer server;
  const ClientResponse openai = server.post("/v1/chat/completions", sum_for("demos"));
  EXPECT_EQ(openai.status, 404);
  const Json error = openai.json().at("error");
  EXPECT_EQ(error.at("code"), "model_not_found");
  EXPECT_EQ(error.at("param"), "model");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_EQ(error.at("message"),
            "model 'demos' not found, did you mean demo?; there are: broken, demo, org/mla");
  const ClientResponse anthropic = server.post("/v1/messages", sum_for("claude"));
  EXPECT_EQ(anthropic.status, 404);
  EXPECT_EQ(anthropic.json().at("error").at("type"), "not_found_error");
  const ClientResponse ollama = server.post("/api/chat", sum_for("llama3"));
  EXPECT_EQ(ollama.status, 404);
  EXPECT_EQ(ollama.json().at("error").get<std::string>().substr(0, 24), "model 'llama3' not found");
  EXPECT_EQ(server.post("/v1/responses", {{"model", "x"}, {"input", "x"}}).status, 404);
  EXPECT_EQ(server.get("/v1/models/nothing").status, 404);
  EXPECT_EQ(server.post("/api/show", {{"model", "nothing"}}).status, 404);
  const ClientResponse unnamed = server.post("/v1/chat/completions", sum_for(""));
  EXPECT_EQ(unnamed.status, 400);
  EXPECT_EQ(unnamed.json().at("error").at("param"), "model");
  EXPECT_EQ(server.post("/v1/completions", {{"model", 5}, {"prompt", "x"}}).status, 400);
  EXPECT_EQ(server.post("/v1/completions", {{"model", std::string(300, 'x')}}).status, 400);
  EXPECT_EQ(server.post("/v1/completions", {{"model", "broken"}, {"prompt", "x"}}).status, 500);
  EXPECT_EQ(server.pool().stats().n_loads, 0u);
}

TEST(SeveralModelsTest, BothAtTheSameTime) {
  PoolOptions options = pool_options();
  options.max_models = 2;
  PoolServer server(std::move(options));
  std::vector<std::future<std::string>> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(std::async(std::launch::async, [&server, i] {
      return content_of(server.post("/v1/chat/completions", sum_for(i % 2 == 0 ? "demo" : "mla")));
    }));
  }
  for (auto& each : answers) EXPECT_EQ(each.get(), "12 + 30 = 42");
  EXPECT_EQ(server.pool().stats().n_loads, 2u);
  const PoolStats stats = server.pool().stats();
  EXPECT_LE(stats.used_bytes, stats.ceiling);
}

TEST(SeveralModelsTest, OneAfterTheOtherForMany) {
  PoolServer server;  // room for one
  std::vector<std::future<std::string>> answers;
  for (int i = 0; i < 6; ++i) {
    answers.push_back(std::async(std::launch::async, [&server, i] {
      return content_of(server.post("/v1/chat/completions", sum_for(i % 2 == 0 ? "demo" : "mla")));
    }));
  }
  for (auto& each : answers) EXPECT_EQ(each.get(), "12 + 30 = 42");
}

TEST(SeveralModelsTest, OthersAreAnsweredDuringALoad) {
  Gate gate;
  PoolOptions options = pool_options();
  options.max_models = 2;
  PoolServer server(std::move(options), gate.events());
  EXPECT_EQ(content_of(server.post("/v1/chat/completions", sum_for("mla"))), "12 + 30 = 42");
  std::deque<HttpClient> waiting;
  for (int i = 0; i < 4; ++i)
    waiting.emplace_back(server.port()).post("/v1/chat/completions", sum_for("demo").dump());
  gate.wait_for_load();
  // More requests wait than there are workers, and none of those is kept.
  ASSERT_TRUE(comes_true([&] { return server.pool().stats().n_waiting == 4; }));
  EXPECT_EQ(content_of(server.post("/v1/chat/completions", sum_for("mla"))), "12 + 30 = 42");
  EXPECT_EQ(server.get("/health").status, 200);
  gate.open();
  for (HttpClient& each : waiting) EXPECT_EQ(content_of(each.read()), "12 + 30 = 42");
}

TEST(SeveralModelsTest, WhoLeavesDuringALoadIsForgotten) {
  Gate gate;
  PoolServer server(pool_options(), gate.events());
  HttpClient stays(server.port());
  {
    HttpClient leaves(server.port());
    leaves.post("/v1/chat/completions", sum_for("demo").dump());
    gate.wait_for_load();
    stays.post("/v1/chat/completions", sum_for("demo").dump());
    ASSERT_TRUE(comes_true([&] { return server.pool().stats().n_waiting == 2; }));
  }
  EXPECT_TRUE(comes_true([&] { return server.pool().stats().n_waiting == 1; }));
  gate.open();
  EXPECT_EQ(content_of(stays.read()), "12 + 30 = 42");
  EXPECT_TRUE(comes_true([&] { return !server.pool().loaded().at(0).in_use; }));
}

TEST(SeveralModelsTest, AnAnswerKeepsItsModel) {
  PoolServer server;
  HttpClient client(server.port());
  Json story = sum_for("demo");
  story["ignore_eos"] = true;
  story["stream"] = true;
  client.post("/v1/chat/completions", story.dump());
  client.read_until("\"delta\":");
  EXPECT_EQ(server.post("/api/generate", {{"model", "demo"}, {"keep_alive", 0}}).status, 200);
  client.read_until("\"delta\":");
  EXPECT_TRUE(server.pool().loaded().at(0).in_use);
  client.close();
  EXPECT_TRUE(comes_true([&] { return server.loaded().empty(); }));
}

TEST(SeveralModelsTest, OllamaLoadsAndUnloads) {
  PoolServer server;
  EXPECT_EQ(server.get("/api/ps").body, R"({"models":[]})");
  const Json gone = server.post("/api/generate", {{"model", "demo"}, {"keep_alive", 0}}).json();
  EXPECT_EQ(gone.at("done_reason"), "unload");
  EXPECT_EQ(server.pool().stats().n_loads, 0u);  // not for that

  EXPECT_EQ(server.post("/api/generate", {{"model", "demo"}, {"keep_alive", "10m"}})
                .json()
                .at("done_reason"),
            "load");
  const Json running = server.get("/api/ps").json().at("models");
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running.at(0).at("name"), "demo:latest");
  EXPECT_EQ(running.at(0).at("context_length"), 512);
  EXPECT_LT(running.at(0).at("expires_at").get<std::string>(), "9999");
  EXPECT_EQ(
      server.post("/api/chat", {{"model", "demo"}, {"keep_alive", -1}}).json().at("done_reason"),
      "load");
  EXPECT_EQ(server.get("/api/ps").json().at("models").at(0).at("expires_at"),
            "9999-12-31T23:59:59Z");
  EXPECT_EQ(
      server.post("/api/chat", {{"model", "demo"}, {"keep_alive", 0}}).json().at("done_reason"),
      "unload");
  EXPECT_TRUE(comes_true([&] { return server.loaded().empty(); }));
  EXPECT_EQ(server.post("/api/chat", {{"model", "demo"}, {"keep_alive", "soon"}}).status, 400);
}

TEST(SeveralModelsTest, KeepAliveOfZeroUnloadsAfterTheAnswer) {
  PoolServer server;
  Json body = {{"model", "demo"},
               {"stream", false},
               {"think", false},
               {"keep_alive", 0},
               {"options", {{"temperature", 0}}},
               {"messages", Json::array({{{"role", "user"}, {"content", "What is 12 + 30?"}}})}};
  EXPECT_EQ(server.post("/api/chat", body).json().at("message").at("content"), "12 + 30 = 42");
  EXPECT_TRUE(comes_true([&] { return server.loaded().empty(); }));
}

TEST(SeveralModelsTest, AreListedWithoutBeingLoaded) {
  PoolServer server;
  const Json models = server.get("/v1/models").json().at("data");
  ASSERT_EQ(models.size(), 2u);  // without the broken one
  EXPECT_EQ(models.at(0).at("id"), "demo");
  EXPECT_EQ(models.at(0).at("meta").at("loaded"), false);
  EXPECT_EQ(models.at(0).at("meta").at("family"), "qwen3_5_moe");
  EXPECT_EQ(server.get("/v1/models/org/mla").json().at("id"), "org/mla");
  const Json tags = server.get("/api/tags").json().at("models");
  ASSERT_EQ(tags.size(), 2u);
  EXPECT_EQ(tags.at(1).at("name"), "org/mla:latest");
  EXPECT_EQ(tags.at(1).at("details").at("family"), "deepseek_v3");
  const Json shown = server.post("/api/show", {{"model", "demo"}}).json();
  EXPECT_EQ(shown.at("capabilities"), (Json{"completion", "tools", "thinking"}));
  EXPECT_EQ(shown.at("model_info").at("qwen3_5_moe.context_length"), 512);
  EXPECT_EQ(server.get("/slots").json(), Json::array());
  EXPECT_EQ(server.pool().stats().n_loads, 0u);

  server.post("/v1/chat/completions", sum_for("demo"));
  const Json loaded = server.get("/v1/models/demo").json();
  EXPECT_EQ(loaded.at("created"), models.at(0).at("created"));
  EXPECT_EQ(loaded.at("meta").at("loaded"), true);
  EXPECT_EQ(loaded.at("meta").at("n_ctx"), 512);
  EXPECT_EQ(loaded.at("meta").at("n_params"), models.at(0).at("meta").at("n_params"));
  // Whether it is loaded makes no difference to what is shown.
  EXPECT_EQ(server.post("/api/show", {{"model", "demo"}}).json(), shown);
  EXPECT_EQ(server.get("/api/ps").json().at("models").at(0).at("digest"), tags.at(0).at("digest"));
  const Json slots = server.get("/slots").json();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots.at(0).at("model"), "demo");
  EXPECT_EQ(server.get("/slots?model=mla").json(), Json::array());
}

TEST(SeveralModelsTest, MetricsOfAll) {
  PoolServer server;
  server.post("/v1/chat/completions", sum_for("demo"));
  const std::string text = server.get("/metrics").body;
  for (const char* line :
       {"\nmoeflux:models_loaded 1\n", "\nmoeflux:model_loads_total 1\n",
        "\nmoeflux:requests_finished_total{model=\"demo\"} 1\n",
        "\nmoeflux:time_to_first_token_seconds_bucket{model=\"demo\",le=\"+Inf\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(SeveralModelsTest, DrainingEndsWhatWaits) {
  Gate gate;
  PoolServer server(pool_options(), gate.events());
  HttpClient client(server.port());
  client.post("/v1/chat/completions", sum_for("demo").dump());
  gate.wait_for_load();
  ASSERT_TRUE(comes_true([&] { return server.pool().stats().n_waiting == 1; }));
  std::thread drain([&] { server.pool().drain(1s); });
  EXPECT_EQ(client.read().status, 503);
  gate.open();
  drain.join();
  EXPECT_EQ(server.post("/v1/chat/completions", sum_for("mla")).status, 503);
}

}  // namespace
}  // namespace moeflux::test
