// Ollama's API as a client sees it, byte by byte where an answer is streamed.
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "server/demo_server.h"
#include "server/dialects/ollama/ollama.h"

namespace moeflux::test {
namespace {

class OllamaTest : public testing::Test {
 protected:
  DemoServer server_;
};

// Times and what was measured differ from run to run.
std::string masked(std::string text) {
  text = std::regex_replace(text, std::regex("\"created_at\":\"[-0-9]+T[:0-9]+\\.[0-9]{9}Z\""),
                            "\"created_at\":TIME");
  text = std::regex_replace(text, std::regex("_duration\":[0-9]+"), "_duration\":NS");
  text = std::regex_replace(text, std::regex("\"call_[A-Za-z0-9]{24}\""), "\"call_ID\"");
  return std::regex_replace(text, std::regex(",\"moeflux\":\\{.*\\}\\}\\}"), "}");
}

Json sum_chat() {
  return {{"model", "demo"},
          {"messages", Json::array({{{"role", "user"}, {"content", "What is 12 + 30?"}}})},
          {"think", false},
          {"options", {{"temperature", 0}}}};
}

std::vector<Json> lines_of(const ClientResponse& response) {
  std::vector<Json> lines;
  std::istringstream text(response.body);
  for (std::string line; std::getline(text, line);) lines.push_back(parse_json(line, "line"));
  return lines;
}

Json weather_tool() {
  return parse_json(R"({"type": "function", "function": {"name": "get_weather",
    "description": "Get the weather in a city", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}}, "required": ["city"]}}})",
                    "test");
}

constexpr const char* kSums =
    R"("total_duration":NS,"load_duration":NS,"prompt_eval_count":24,"prompt_eval_duration":NS,)"
    R"("eval_count":10,"eval_duration":NS})";

TEST_F(OllamaTest, ChatStreamsLines) {
  const ClientResponse response = server_.post("/api/chat", sum_chat());
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.headers.at("content-type"), "application/x-ndjson");
  std::string want;
  for (const char* piece : {"1", "2", " +", " ", "3", "0", " =", " ", "4", "2"}) {
    want += R"({"model":"demo","created_at":TIME,"message":{"role":"assistant","content":")";
    want += piece;
    want += "\"},\"done\":false}\n";
  }
  want += std::string(R"({"model":"demo","created_at":TIME,"message":{"role":"assistant",)") +
          R"("content":""},"done":true,"done_reason":"stop",)" + kSums + "\n";
  EXPECT_EQ(masked(response.body), want);
}

TEST_F(OllamaTest, ChatAsOneObject) {
  Json body = sum_chat();
  body["stream"] = false;
  const ClientResponse response = server_.post("/api/chat", body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  EXPECT_EQ(masked(response.body),
            std::string(R"({"model":"demo","created_at":TIME,"message":{"role":"assistant",)") +
                R"("content":"12 + 30 = 42"},"done":true,"done_reason":"stop",)" + kSums);
  const Json object = response.json();
  EXPECT_GT(object.at("total_duration").get<std::int64_t>(), 0);
  EXPECT_GE(object.at("total_duration").get<std::int64_t>(),
            object.at("prompt_eval_duration").get<std::int64_t>());
  EXPECT_EQ(object.at("moeflux").at("precision"), "fine");
}

TEST_F(OllamaTest, ThoughtsHaveAPlaceOfTheirOwn) {
  Json body = sum_chat();
  body["messages"][0]["content"] = "Compute 37 + 33.";
  body["think"] = true;
  std::string thinking, content;
  for (const Json& line : lines_of(server_.post("/api/chat", body))) {
    thinking += line.at("message").value("thinking", "");
    content += line.at("message").at("content").get<std::string>();
  }
  EXPECT_EQ(thinking, "7 + 3 = 10, 3 + 3 + 1 = 7, so 70.");
  EXPECT_EQ(content, "37 + 33 = 70");
  body["stream"] = false;
  const Json message = server_.post("/api/chat", body).json().at("message");
  EXPECT_EQ(message, (Json{{"role", "assistant"}, {"content", content}, {"thinking", thinking}}));
}

TEST_F(OllamaTest, ToolsAreCalledAndAnswered) {
  Json body = sum_chat();
  body["messages"][0]["content"] = "Is it raining in Rabat?";
  body["tools"] = Json::array({weather_tool()});
  const ClientResponse response = server_.post("/api/chat", body);
  const std::vector<Json> lines = lines_of(response);
  ASSERT_EQ(lines.size(), 2u) << response.body;
  EXPECT_EQ(masked(dump_json(lines[0])),
            R"({"model":"demo","created_at":TIME,"message":{"role":"assistant","content":"",)"
            R"("tool_calls":[{"id":"call_ID","function":{"index":0,"name":"get_weather",)"
            R"("arguments":{"city":"Rabat"}}}]},"done":false})");
  EXPECT_EQ(lines[1].at("done_reason"), "stop");

  // The next turn is the same prompt as in OpenAI's words.
  body["messages"].push_back(lines[0].at("message"));
  body["messages"].push_back(
      {{"role", "tool"}, {"tool_name", "get_weather"}, {"content", "{\"weather\": \"rain\"}"}});
  body["stream"] = false;
  const Json again = server_.post("/api/chat", body).json();
  Json openai = {{"messages", body["messages"]},
                 {"tools", body["tools"]},
                 {"temperature", 0},
                 {"chat_template_kwargs", {{"enable_thinking", false}}}};
  const Json other = server_.post("/v1/chat/completions", openai).json();
  EXPECT_EQ(again.at("message").at("content"),
            other.at("choices").at(0).at("message").at("content"));
  EXPECT_EQ(again.at("prompt_eval_count"), other.at("usage").at("prompt_tokens"));
}

TEST_F(OllamaTest, LengthAndStop) {
  Json body = sum_chat();
  body["stream"] = false;
  body["options"]["num_predict"] = 3;
  Json object = server_.post("/api/chat", body).json();
  EXPECT_EQ(object.at("done_reason"), "length");
  EXPECT_EQ(object.at("message").at("content"), "12 +");
  EXPECT_EQ(object.at("eval_count"), 3);
  body["options"] = {{"temperature", 0}, {"stop", Json::array({" ="})}};
  object = server_.post("/api/chat", body).json();
  EXPECT_EQ(object.at("done_reason"), "stop");
  EXPECT_EQ(object.at("message").at("content"), "12 + 30");
}

TEST_F(OllamaTest, GenerateStreamsAndAnswersAtOnce) {
  Json body = {{"prompt", "What is 12 + 30?"}, {"think", false}, {"options", {{"temperature", 0}}}};
  const std::vector<Json> lines = lines_of(server_.post("/api/generate", body));
  ASSERT_EQ(lines.size(), 11u);
  EXPECT_EQ(masked(dump_json(lines[0])),
            R"({"model":"demo","created_at":TIME,"response":"1","done":false})");
  body["stream"] = false;
  EXPECT_EQ(masked(server_.post("/api/generate", body).body),
            std::string(R"({"model":"demo","created_at":TIME,"response":"12 + 30 = 42",)") +
                R"("done":true,"done_reason":"stop",)" + kSums);
}

TEST_F(OllamaTest, RawPromptsAreNotTakenApart) {
  const Json body = {{"raw", true},
                     {"stream", false},
                     {"prompt",
                      "<|im_start|>user\nCompute 37 + 33.<|im_end|>\n<|im_start|>assistant"
                      "\n<think>\n"},
                     {"options", {{"temperature", 0}}}};
  EXPECT_EQ(server_.post("/api/generate", body).json().at("response"),
            "7 + 3 = 10, 3 + 3 + 1 = 7, so 70.\n</think>\n\n37 + 33 = 70");
}

TEST_F(OllamaTest, LogprobsGoWithTheirText) {
  Json body = sum_chat();
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const std::vector<Json> lines = lines_of(server_.post("/api/chat", body));
  const Json& token = lines[0].at("logprobs").at(0);
  EXPECT_EQ(token.at("token"), "1");
  EXPECT_EQ(token.at("bytes"), Json::array({49}));
  EXPECT_EQ(token.at("top_logprobs").size(), 2u);
}

TEST_F(OllamaTest, NothingToAnswerIsALoad) {
  EXPECT_EQ(masked(server_.post("/api/chat", {{"model", "demo"}}).body),
            R"({"model":"demo","created_at":TIME,"message":{"role":"assistant","content":""},)"
            R"("done":true,"done_reason":"load"})");
  EXPECT_EQ(masked(server_.post("/api/generate", {{"model", "demo"}, {"keep_alive", 0}}).body),
            R"({"model":"demo","created_at":TIME,"response":"","done":true,"done_reason":"load"})");
}

TEST_F(OllamaTest, ModelsAreListed) {
  const Json tags = server_.get("/api/tags").json();
  const Json& model = tags.at("models").at(0);
  EXPECT_EQ(model.at("name"), "demo:latest");
  EXPECT_EQ(model.at("model"), "demo:latest");
  EXPECT_EQ(model.at("size"), server_.service().facts().size_bytes);
  EXPECT_EQ(model.at("digest").get<std::string>().size(), 16u);
  EXPECT_EQ(model.at("details").at("family"), server_.service().engine().config().family);
  const Json running = server_.get("/api/ps").json();
  EXPECT_EQ(running.at("models").at(0).at("context_length"), 512);
  EXPECT_EQ(running.at("models").at(0).at("digest"), model.at("digest"));
}

TEST_F(OllamaTest, ModelsAreShown) {
  const Json shown = server_.post("/api/show", {{"model", "demo"}}).json();
  const std::string family = shown.at("model_info").at("general.architecture");
  EXPECT_EQ(shown.at("model_info").at(family + ".context_length"), 512);
  EXPECT_EQ(shown.at("capabilities"), (Json{"completion", "tools", "thinking"}));
  EXPECT_EQ(shown.at("template"), server_.get("/props").json().at("chat_template"));
  EXPECT_EQ(shown.at("parameters").get<std::string>().substr(0, 12), "temperature ");
  EXPECT_EQ(server_.post("/api/show", {{"name", "demo:latest"}}).status, 200);
  const ClientResponse other = server_.post("/api/show", {{"model", "other"}});
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.body, R"({"error":"model 'other' not found; demo is loaded"})");
  EXPECT_EQ(server_.post("/api/show", Json::object()).status, 400);
}

TEST_F(OllamaTest, VersionAndGreeting) {
  EXPECT_EQ(server_.get("/api/version").body, R"({"version":"0.12.6","moeflux":"test"})");
  const ClientResponse greeting = server_.get("/");
  EXPECT_EQ(greeting.body, "moeflux is running");
  EXPECT_EQ(greeting.headers.at("content-type"), "text/plain; charset=utf-8");
}

TEST_F(OllamaTest, ErrorsAreOneString) {
  Json body = sum_chat();
  body["options"]["num_ctx"] = 4096;
  const ClientResponse large = server_.post("/api/chat", body);
  EXPECT_EQ(large.status, 400);
  EXPECT_EQ(large.body, R"({"error":"options.num_ctx is 4096, but the server was started with a )"
                        R"(context of 512; ask for less, or start it with a larger --ctx-size"})");
  body = sum_chat();
  body["messages"][0]["role"] = "robot";
  const ClientResponse role = server_.post("/api/chat", body);
  EXPECT_EQ(role.status, 400);
  EXPECT_NE(role.json().at("error").get<std::string>().find("robot"), std::string::npos);
  for (const char* path : {"/api/pull", "/api/blobs/sha256:12"}) {
    const ClientResponse refused = server_.post(path, {{"model", "demo"}, {"input", "x"}});
    EXPECT_EQ(refused.status, 501) << path;
    EXPECT_TRUE(refused.json().at("error").is_string()) << path;
  }
}

TEST(OllamaLoadingTest, WhileTheModelLoads) {
  DemoServer server({.loaded = false});
  EXPECT_EQ(server.get("/").status, 200);
  EXPECT_EQ(server.get("/api/version").status, 200);
  EXPECT_EQ(server.get("/api/ps").body, R"({"models":[]})");
  const ClientResponse chat = server.post("/api/chat", sum_chat());
  EXPECT_EQ(chat.status, 503);
  EXPECT_EQ(chat.body, R"({"error":"the model is being loaded"})");
}

TEST(OllamaTimeTest, HasNanoseconds) {
  using namespace std::chrono_literals;
  EXPECT_EQ(ollama_time(std::chrono::system_clock::time_point(1700000000s + 12345ns)),
            "2023-11-14T22:13:20.000012345Z");
}

}  // namespace
}  // namespace moeflux::test
