// /v1/messages as a client sees it, with the demo model behind it.
#include <regex>

#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

std::string masked(std::string text) {
  text = std::regex_replace(text, std::regex("(msg_|toolu_|req_)[A-Za-z0-9]{24}"), "$1ID");
  return std::regex_replace(text, std::regex(",\"timings\":.*\\}"), "}");
}

Json ask(const std::string& text) {
  return {{"model", "demo"},
          {"max_tokens", 100},
          {"temperature", 0},
          {"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
}

Json weather_tools() {
  return Json::array({{{"name", "get_weather"},
                       {"description", "Get the weather in a city"},
                       {"input_schema",
                        {{"type", "object"},
                         {"properties", {{"city", {{"type", "string"}}}}},
                         {"required", Json::array({"city"})}}}}});
}

Json ask_weather() {
  Json body = ask("Is it raining in Rabat?");
  body["tools"] = weather_tools();
  return body;
}

std::string event(const std::string& type, const std::string& rest) {
  return "event: " + type + "\ndata: {\"type\":\"" + type + "\"" + rest + "}\n\n";
}
std::string delta(int index, const std::string& what) {
  return event("content_block_delta",
               ",\"index\":" + std::to_string(index) + ",\"delta\":{" + what + "}");
}
std::string start(int n_prompt) {
  return event("message_start",
               R"(,"message":{"id":"msg_ID","type":"message","role":"assistant","model":"demo",)"
               R"("content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":)" +
                   std::to_string(n_prompt) +
                   R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,)"
                   R"("output_tokens":0}})") +
         event("ping", "");
}
std::string finish(const std::string& reason, int n_prompt, int n_tokens, int n_thought) {
  return event("message_delta",
               R"(,"delta":{"stop_reason":")" + reason +
                   R"(","stop_sequence":null},"usage":{"input_tokens":)" +
                   std::to_string(n_prompt) +
                   R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,)"
                   R"("output_tokens":)" +
                   std::to_string(n_tokens) + R"(,"output_tokens_details":{"thinking_tokens":)" +
                   std::to_string(n_thought) + "}}") +
         event("message_stop", "");
}

class AnthropicRoutesTest : public testing::Test {
 protected:
  ClientResponse post(const Json& body, const std::string& headers = "") {
    return server_.post("/v1/messages", body, headers);
  }
  DemoServer server_;
};

TEST_F(AnthropicRoutesTest, OneMessage) {
  const ClientResponse response =
      post(ask("What is 12 + 30?"),
           "anthropic-version: 2023-06-01\r\nanthropic-beta: a,b\r\nx-api-key: any\r\n");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.headers.at("content-type"), "application/json");
  EXPECT_EQ(response.headers.at("request-id").substr(0, 4), "req_");
  EXPECT_EQ(masked(response.body),
            R"({"id":"msg_ID","type":"message","role":"assistant","model":"demo","content":)"
            R"([{"type":"text","text":"12 + 30 = 42"}],"stop_reason":"end_turn",)"
            R"("stop_sequence":null,"usage":{"input_tokens":24,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":0,"output_tokens":10,)"
            R"("output_tokens_details":{"thinking_tokens":0}}})");
  EXPECT_EQ(response.json().at("timings").at("predicted_n"), 10);
  EXPECT_EQ(response.json().at("moeflux").at("precision"), "fine");
}

TEST_F(AnthropicRoutesTest, TextByteByByte) {
  Json body = ask("What is 12 + 30?");
  body["stream"] = true;
  const ClientResponse response = server_.post("/v1/messages?beta=true", body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
  std::string expected =
      start(24) +
      event("content_block_start", R"(,"index":0,"content_block":{"type":"text","text":""})");
  for (const char* piece : {"1", "2", " +", " ", "3", "0", " =", " ", "4", "2"})
    expected += delta(0, std::string(R"("type":"text_delta","text":")") + piece + "\"");
  EXPECT_EQ(masked(response.body), expected + event("content_block_stop", R"(,"index":0)") +
                                       finish("end_turn", 24, 10, 0));
}

TEST_F(AnthropicRoutesTest, ThinkingByteByByte) {
  Json body = ask("Compute 40 + 91.");
  body["stream"] = true;
  body["thinking"] = {{"type", "enabled"}, {"budget_tokens", 1024}};
  const ClientResponse response = post(body);
  ASSERT_EQ(response.status, 200) << response.body;
  std::string expected =
      start(19) + event("content_block_start",
                        R"(,"index":0,"content_block":{"type":"thinking","thinking":"",)"
                        R"("signature":""})");
  for (const char* piece : {"0", " +", " 1", " =", " 1", ",", " 4", " +", " 9", " =", " 1", "3",
                            ",", " so", " 1", "3", "1", "."})
    expected += delta(0, std::string(R"("type":"thinking_delta","thinking":")") + piece + "\"");
  expected +=
      delta(0, R"("type":"signature_delta","signature":"bW9lZmx1eA==")") +
      event("content_block_stop", R"(,"index":0)") +
      event("content_block_start", R"(,"index":1,"content_block":{"type":"text","text":""})");
  for (const char* piece : {"4", "0", " +", " ", "9", "1", " =", " ", "1", "3", "1"})
    expected += delta(1, std::string(R"("type":"text_delta","text":")") + piece + "\"");
  EXPECT_EQ(masked(response.body), expected + event("content_block_stop", R"(,"index":1)") +
                                       finish("end_turn", 19, 38, 28));
  body["stream"] = false;
  EXPECT_EQ(post(body).json().at("content"),
            parse_json(R"([{"type": "thinking", "thinking": "0 + 1 = 1, 4 + 9 = 13, so 131.",
                            "signature": "bW9lZmx1eA=="},
                           {"type": "text", "text": "40 + 91 = 131"}])",
                       "test"));
}

TEST_F(AnthropicRoutesTest, ACallByteByByte) {
  Json body = ask_weather();
  body["stream"] = true;
  const ClientResponse response = post(body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(masked(response.body),
            start(72) +
                event("content_block_start",
                      R"(,"index":0,"content_block":{"type":"tool_use","id":"toolu_ID",)"
                      R"("name":"get_weather","input":{}})") +
                delta(0, R"("type":"input_json_delta","partial_json":"{")") +
                delta(0, R"("type":"input_json_delta","partial_json":"\"city\":")") +
                delta(0, R"("type":"input_json_delta","partial_json":"\"Rabat")") +
                delta(0, R"("type":"input_json_delta","partial_json":"\"}")") +
                event("content_block_stop", R"(,"index":0)") + finish("tool_use", 72, 18, 0));
}

TEST_F(AnthropicRoutesTest, AHistoryWithACallAndItsResult) {
  Json body = ask_weather();
  const Json message = post(body).json();
  EXPECT_EQ(message.at("stop_reason"), "tool_use");
  const Json& call = message.at("content").at(0);
  EXPECT_EQ(call.at("type"), "tool_use");
  EXPECT_EQ(call.at("name"), "get_weather");
  EXPECT_EQ(call.at("input"), (Json{{"city", "Rabat"}}));
  body["messages"].push_back({{"role", "assistant"}, {"content", message.at("content")}});
  body["messages"].push_back(
      {{"role", "user"},
       {"content",
        Json::array({{{"type", "tool_result"},
                      {"tool_use_id", call.at("id")},
                      {"content", Json::array({{{"type", "text"}, {"text", "sunny"}}})}}})}});
  const Json answer = post(body).json();
  ASSERT_EQ(answer.value("type", ""), "message") << answer;
  EXPECT_EQ(answer.at("stop_reason"), "end_turn");
  EXPECT_EQ(answer.at("content").at(0).at("type"), "text");
  // What the model wrote itself is read back without computing it again.
  EXPECT_GE(answer.at("usage").at("cache_read_input_tokens").get<int>(), 72);
}

TEST_F(AnthropicRoutesTest, ABillingLineDoesNotSpoilThePrefix) {
  const auto ask_with = [&](const std::string& checksum) {
    Json body = ask("What is 12 + 30?");
    body["system"] = Json::array(
        {{{"type", "text"},
          {"text", "x-anthropic-billing-header: cc_version=2.1.9; cch=" + checksum + ";"}},
         {{"type", "text"}, {"text", "DialectAnswer."}}});
    return post(body).json().at("usage");
  };
  EXPECT_EQ(ask_with("00001").at("cache_read_input_tokens"), 0);
  EXPECT_GT(ask_with("fffff").at("cache_read_input_tokens").get<int>(), 20);
}

TEST_F(AnthropicRoutesTest, StopReasons) {
  Json body = ask("What is 12 + 30?");
  body["stop_sequences"] = Json::array({"zz", " ="});
  Json message = post(body).json();
  EXPECT_EQ(message.at("stop_reason"), "stop_sequence");
  EXPECT_EQ(message.at("stop_sequence"), " =");
  EXPECT_EQ(message.at("content").at(0).at("text"), "12 + 30");
  body = ask("What is 12 + 30?");
  body["max_tokens"] = 3;
  message = post(body).json();
  EXPECT_EQ(message.at("stop_reason"), "max_tokens");
  EXPECT_EQ(message.at("content").at(0).at("text"), "12 +");
  EXPECT_EQ(message.at("usage").at("output_tokens"), 3);
}

TEST_F(AnthropicRoutesTest, ToolsThatMayNotBeCalledAreNotShown) {
  Json body = ask_weather();
  body["tool_choice"] = {{"type", "none"}};
  const Json message = post(body).json();
  EXPECT_NE(message.at("stop_reason"), "tool_use");
}

TEST_F(AnthropicRoutesTest, CountsWhatIsRead) {
  for (Json body : {ask("What is 12 + 30?"), ask_weather()}) {
    const Json usage = post(body).json().at("usage");
    const int used = usage.at("input_tokens").get<int>() +
                     usage.at("cache_read_input_tokens").get<int>() +
                     usage.at("cache_creation_input_tokens").get<int>();
    body.erase("max_tokens");
    const ClientResponse counted = server_.post("/v1/messages/count_tokens", body);
    EXPECT_EQ(counted.status, 200);
    EXPECT_EQ(counted.body, "{\"input_tokens\":" + std::to_string(used) + "}");
  }
  const std::string words(6000, 'x');
  EXPECT_GT(server_.post("/v1/messages/count_tokens", ask(words)).json().at("input_tokens"), 512);
}

TEST_F(AnthropicRoutesTest, Refusals) {
  Json body = ask("Hi");
  body.erase("max_tokens");
  const ClientResponse missing = post(body);
  EXPECT_EQ(missing.status, 400);
  EXPECT_EQ(masked(missing.body),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"max_tokens is )"
            R"(missing"},"request_id":"req_ID"})");
  EXPECT_EQ(missing.json().at("request_id"), missing.headers.at("request-id"));
  EXPECT_EQ(post("{").status, 400);
  const ClientResponse too_long = post(ask(std::string(6000, 'x')));
  EXPECT_EQ(too_long.status, 400);
  EXPECT_TRUE(std::regex_search(too_long.body,
                                std::regex("prompt is too long: [0-9]+ tokens > 512 maximum")))
      << too_long.body;
  body = ask("Hi");
  body["tool_choice"] = {{"type", "any"}};
  EXPECT_EQ(post(body).json().at("error").at("type"), "invalid_request_error");
  body = ask("Hi");
  body["temperature"] = -1;
  EXPECT_EQ(post(body).status, 400);
}

TEST(AnthropicServerTest, KeysAndLoading) {
  DemoServer server(
      {.app = {.model_id = "demo", .version = "test", .api_keys = {"secret"}}, .loaded = false});
  const auto ask_with = [&](const char* header) {
    const ClientResponse response = server.post("/v1/messages", ask("Hi"), header);
    return std::to_string(response.status) + " " +
           response.json().at("error").at("type").get<std::string>();
  };
  EXPECT_EQ(ask_with(""), "401 authentication_error");
  EXPECT_EQ(ask_with("x-api-key: wrong\r\n"), "401 authentication_error");
  EXPECT_EQ(ask_with("x-api-key: secret\r\n"), "529 overloaded_error");
  EXPECT_EQ(ask_with("Authorization: Bearer secret\r\n"), "529 overloaded_error");
}

}  // namespace
}  // namespace moeflux::test
