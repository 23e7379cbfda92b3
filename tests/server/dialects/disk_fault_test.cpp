// A drive that fails while an answer is being given: that answer ends with an error that says what
// happened, in the words of its dialect, and the next one is right.
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

// So little memory that every pass reads.
std::uint64_t tiny_memory(EngineOptions options, const std::string& model) {
  options.reader.filter = {};
  const Engine engine(model, options);
  return engine.plan().floor_bytes() + engine.plan().slot_bytes;
}

// What follows "data: ", whatever lines stand beside it.
std::vector<Json> data_of(const ClientResponse& response) {
  std::vector<Json> data;
  std::istringstream text(response.body);
  for (std::string line; std::getline(text, line);) {
    if (line.rfind("data: ", 0) == 0) data.push_back(parse_json(line.substr(6), "event"));
  }
  return data;
}

class DiskFaultTest : public testing::Test {
 protected:
  DiskFaultTest()
      : server_({.model = source_path("models/demo"), .adjust = [this](EngineOptions& options) {
                   options.lookahead = 0;
                   options.memory_bytes = tiny_memory(options, source_path("models/demo"));
                   options.reader.filter = [this](const KernelRead&, std::int64_t result) {
                     return fails() ? std::int64_t{-EIO} : result;
                   };
                 }}) {}

  // From the fourth token of an answer on.
  bool fails() { return armed_ && server_.service().stats().decode_rows >= fails_at_; }
  void arm() {
    fails_at_ = server_.service().stats().decode_rows + 4;
    armed_ = true;
  }
  ClientResponse ask(const std::string& path, const Json& body) {
    arm();
    ClientResponse response = server_.post(path, body);
    armed_ = false;
    return response;
  }
  static void expect_cause(const std::string& message) {
    for (const char* part : {"models/demo", "offset", "Input/output error"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  void expect_next_is_right() {
    const Json body = server_.post("/v1/chat/completions", sum_question()).json();
    EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "12 + 30 = 42");
  }

  std::atomic<bool> armed_ = false;
  std::atomic<std::uint64_t> fails_at_ = 0;
  DemoServer server_;  // last: its engine asks the others
};

TEST_F(DiskFaultTest, OneResponseBecomesAnErrorInEachDialect) {
  Json chat = sum_question();
  ClientResponse response = ask("/v1/chat/completions", chat);
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(response.json().at("error").at("type"), "server_error");
  expect_cause(response.json().at("error").at("message"));
  expect_next_is_right();

  response = ask("/v1/completions", {{"prompt", "Once upon a time"}, {"max_tokens", 20}});
  EXPECT_EQ(response.status, 500);
  expect_cause(response.json().at("error").at("message"));

  response = ask("/v1/responses", {{"input", "What is 12 + 30?"}});
  EXPECT_EQ(response.status, 500);
  expect_cause(response.json().at("error").at("message"));

  chat["max_tokens"] = 100;
  response = ask("/v1/messages", chat);
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(response.json().at("type"), "error");
  EXPECT_EQ(response.json().at("error").at("type"), "api_error");
  expect_cause(response.json().at("error").at("message"));

  chat["stream"] = false;
  response = ask("/api/chat", chat);
  EXPECT_EQ(response.status, 500);
  expect_cause(response.json().at("error"));
  expect_next_is_right();
  EXPECT_EQ(server_.service().stats().n_failed, 5u);
}

TEST_F(DiskFaultTest, AStreamThatHasBegunEndsWithAnErrorInEachDialect) {
  Json chat = sum_question();
  chat["stream"] = true;
  std::vector<Json> events = data_of(ask("/v1/chat/completions", chat));
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events[1].at("choices").at(0).at("delta").at("content"), "1");
  expect_cause(events.back().at("error").at("message"));
  expect_next_is_right();

  events = data_of(ask("/v1/completions",
                       {{"prompt", "Once upon a time"}, {"max_tokens", 20}, {"stream", true}}));
  ASSERT_GE(events.size(), 3u);
  EXPECT_TRUE(events[0].at("choices").at(0).contains("text"));
  expect_cause(events.back().at("error").at("message"));

  events = data_of(ask("/v1/responses", {{"input", "What is 12 + 30?"}, {"stream", true}}));
  ASSERT_GE(events.size(), 4u);
  EXPECT_EQ(events.back().at("type"), "response.failed");
  EXPECT_EQ(events.back().at("response").at("status"), "failed");
  expect_cause(events.back().at("response").at("error").at("message"));

  chat["max_tokens"] = 100;
  ClientResponse response = ask("/v1/messages", chat);
  EXPECT_NE(response.body.find("event: content_block_delta\n"), std::string::npos);
  EXPECT_NE(response.body.find("event: error\n"), std::string::npos);
  EXPECT_EQ(response.body.find("message_stop"), std::string::npos);
  events = data_of(response);
  ASSERT_GE(events.size(), 4u);
  expect_cause(events.back().at("error").at("message"));

  response = ask("/api/chat", chat);
  EXPECT_EQ(response.status, 200);
  const std::size_t last = response.body.rfind('\n', response.body.size() - 2);
  ASSERT_NE(last, std::string::npos) << response.body;
  expect_cause(parse_json(response.body.substr(last + 1), "line").at("error"));
  expect_next_is_right();

  const std::string metrics = server_.get("/metrics").body;
  EXPECT_NE(metrics.find("\nmoeflux:requests_failed_total 5\n"), std::string::npos) << metrics;
}

// Somebody cuts the file off below a running server, and puts it back.
TEST(TruncatedModelTest, IsAnErrorUntilTheFileIsWholeAgain) {
  const TempDir dir;
  const std::string model = dir.path() + "/demo";
  std::filesystem::copy(source_path("models/demo"), model,
                        std::filesystem::copy_options::recursive);
  DemoServer server({.model = model, .adjust = [&](EngineOptions& options) {
                       options.lookahead = 0;
                       options.memory_bytes = tiny_memory(options, model);
                     }});
  const auto ask = [&] { return server.post("/v1/chat/completions", sum_question()); };
  EXPECT_EQ(ask().status, 200);
  for (const auto& file : std::filesystem::directory_iterator(model)) {
    if (file.path().extension() == ".safetensors") std::filesystem::resize_file(file, 4096);
  }
  const ClientResponse response = ask();
  EXPECT_EQ(response.status, 500) << response.body;
  const std::string message = response.json().at("error").at("message");
  for (const char* part : {".safetensors", "offset", "end"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(server.get("/health").status, 200);

  for (const auto& file : std::filesystem::directory_iterator(source_path("models/demo"))) {
    if (file.path().extension() != ".safetensors") continue;
    std::ifstream whole(file.path(), std::ios::binary);
    std::ofstream(model + "/" + file.path().filename().string(), std::ios::binary | std::ios::in)
        << whole.rdbuf();
  }
  const ClientResponse again = ask();
  ASSERT_EQ(again.status, 200) << again.body;
  EXPECT_EQ(again.json().at("choices").at(0).at("message").at("content"), "12 + 30 = 42");
}

}  // namespace
}  // namespace moeflux::test
