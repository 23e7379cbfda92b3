// Many clients, clients that leave, and the end of the server, with a model behind it.
#include "server/service/generation_service.h"

#include <thread>

#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

using namespace std::chrono_literals;

std::string body_text(const ClientResponse& response) {
  std::string text;
  for (const std::string& event : response.events()) {
    if (event == "[DONE]") return text;
    const Json chunk = parse_json(event, "chunk");
    if (chunk.contains("error")) return text + chunk.at("error").dump();
    text += chunk.at("choices").at(0).at("delta").value("content", "");
  }
  return text + "(no end)";
}

// The first chunk has no text; when the second is there, the answer has a session.
void wait_for_text(HttpClient& client) {
  for (int i = 0; i < 2; ++i) client.read_until("\"content\":\"");
}

void wait_for_waiting(DemoServer& server, std::size_t n) {
  for (int i = 0; i < 1000 && server.service().stats().n_waiting != n; ++i)
    std::this_thread::sleep_for(2ms);
  EXPECT_EQ(server.service().stats().n_waiting, n);
}

TEST(GenerationServiceTest, ConcurrentStreamsAreThoseOfSingleOnes) {
  DemoServer server;
  const std::vector<std::string> texts{"What is 12 + 30?", "Tell me a short story about a frog.",
                                       "What is the capital of Japan?", "What is 7 + 8?"};
  const auto ask = [&](const std::string& text) {
    Json body = question(text);
    body["stream"] = true;
    body["max_tokens"] = 40;
    return body_text(server.post("/v1/chat/completions", body));
  };
  std::vector<std::string> single, together(texts.size());
  for (const std::string& text : texts) single.push_back(ask(text));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] { together[i] = ask(texts[i]); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, single);
  EXPECT_EQ(single[0], "12 + 30 = 42");
}

TEST(GenerationServiceTest, DraftsChangeNothing) {
  DemoServer server({.drafts = {.mtp = true, .ngram = true}});
  EXPECT_EQ(server.post("/v1/chat/completions", sum_question())
                .json()
                .at("choices")
                .at(0)
                .at("message")
                .at("content"),
            "12 + 30 = 42");
}

TEST(GenerationServiceTest, AClientThatLeavesFreesItsSession) {
  DemoServer server({.n_parallel = 1, .context = 4096});
  const auto n_tokens = [&] { return server.service().stats().decode_rows; };
  for (int i = 0; i < 3; ++i) {
    HttpClient client(server.port());
    client.post("/v1/chat/completions", dump_json(endless_question()));
    wait_for_text(client);
    client.close();
    ASSERT_TRUE(server.wait_for_cancelled(static_cast<std::uint64_t>(i) + 1));
    const auto after = n_tokens();
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(n_tokens(), after);  // nothing goes on behind it
  }
  EXPECT_EQ(server.service().stats().n_cancelled, 3u);
  EXPECT_EQ(server.post("/v1/chat/completions", sum_question()).status, 200);
}

TEST(GenerationServiceTest, AClientThatLeavesWhileItWaitsIsForgotten) {
  DemoServer server({.n_parallel = 1, .context = 4096});
  HttpClient running(server.port()), waiting(server.port());
  running.post("/v1/chat/completions", dump_json(endless_question()));
  wait_for_text(running);
  Json silent = endless_question();
  silent["stream"] = false;
  waiting.post("/v1/chat/completions", dump_json(silent));
  wait_for_waiting(server, 1);
  waiting.close();
  wait_for_waiting(server, 0);
  EXPECT_EQ(server.service().stats().n_running, 1u);
}

TEST(GenerationServiceTest, AFullQueueIsRefusedWithATime) {
  DemoServer server({.n_parallel = 1, .max_waiting = 1, .context = 4096});
  HttpClient running(server.port()), waiting(server.port());
  running.post("/v1/chat/completions", dump_json(endless_question()));
  wait_for_text(running);
  waiting.post("/v1/chat/completions", dump_json(endless_question()));
  EXPECT_EQ(waiting.read_head().status, 200);  // the head comes while it waits
  const ClientResponse refused = server.post("/v1/chat/completions", sum_question());
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.at("retry-after"), "5");
  EXPECT_EQ(refused.json().at("error").at("type"), "rate_limit_error");
  Json several = sum_question();
  several["n"] = 2;
  EXPECT_EQ(server.post("/v1/chat/completions", several).status, 429);
}

TEST(GenerationServiceTest, StoppingEndsStreamsWithAReason) {
  DemoServer server({.n_parallel = 1, .context = 4096});
  HttpClient running(server.port()), waiting(server.port());
  running.post("/v1/chat/completions", dump_json(endless_question()));
  wait_for_text(running);
  Json silent = endless_question();
  silent["stream"] = false;
  waiting.post("/v1/chat/completions", dump_json(silent));
  wait_for_waiting(server, 1);
  server.server().drain();
  EXPECT_FALSE(server.service().drain(100ms));
  server.service().stop();
  const std::string rest = running.read_until("0\r\n\r\n");
  EXPECT_NE(rest.find("\"type\":\"unavailable_error\""), std::string::npos);
  EXPECT_EQ(rest.find("[DONE]"), std::string::npos);
  EXPECT_EQ(waiting.read().status, 503);
  EXPECT_TRUE(server.server().wait_until_empty(5s));
}

TEST(GenerationServiceTest, ManyClientsThatLeave) {
  DemoServer server({.n_parallel = 2, .max_waiting = 100, .context = 4096});
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->post("/v1/chat/completions", dump_json(endless_question()));
  }
  for (const auto& client : clients) EXPECT_EQ(client->read_head().status, 200);
  clients.clear();
  EXPECT_TRUE(server.wait_for_cancelled(50));
  EXPECT_EQ(server.post("/v1/chat/completions", sum_question()).status, 200);
}

}  // namespace
}  // namespace moeflux::test
