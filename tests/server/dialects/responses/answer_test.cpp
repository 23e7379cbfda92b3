// /v1/responses as a client sees it, byte by byte where it is streamed.
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

class ResponsesTest : public testing::Test {
 protected:
  DemoServer server_;
};

// Ids, times and what was measured differ from run to run; the response itself has a test of its
// own.
std::string masked(std::string text) {
  text = std::regex_replace(text, std::regex("\"(resp|msg|rs|fc|call)_[A-Za-z0-9]{24}\""),
                            "\"$1_ID\"");
  text = std::regex_replace(text, std::regex("\"created_at\":[0-9]+"), "\"created_at\":TIME");
  text = std::regex_replace(text, std::regex(",\"timings\":[^\n]*"), "}");
  return std::regex_replace(text, std::regex("\"response\":\\{[^\n]*"), "\"response\":...");
}

Json ask(const std::string& text, const char* effort = "none") {
  return {
      {"model", "demo"}, {"input", text}, {"reasoning", {{"effort", effort}}}, {"temperature", 0}};
}

Json timer_tool() {
  return parse_json(R"({"type": "function", "name": "set_timer", "description": "Start a timer",
    "parameters": {"type": "object", "properties": {"minutes": {"type": "integer"}},
    "required": ["minutes"]}})",
                    "test");
}

// "event: TYPE\ndata: {"type":TYPE,"sequence_number":N,...}\n\n" of each.
class Golden {
 public:
  void add(const std::string& type, const std::string& members) {
    text_ += "event: " + type + "\ndata: {\"type\":\"" + type +
             "\",\"sequence_number\":" + std::to_string(n_++) + "," + members + "}\n\n";
  }
  void response(const std::string& type) {
    add(type, "\"response\":...");
    text_.erase(text_.size() - 3, 1);  // the mask takes the whole rest of the line
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int n_ = 0;
};

// Never empty, so that a test fails instead of reading what is not there.
std::vector<Json> events_of(const ClientResponse& response) {
  std::vector<Json> events;
  std::istringstream text(response.body);
  for (std::string line; std::getline(text, line);) {
    if (line.rfind("data: ", 0) == 0) events.push_back(parse_json(line.substr(6), "event"));
  }
  if (events.empty()) throw std::runtime_error("no events: " + response.body);
  return events;
}

std::vector<std::string> types_of(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) {
    const std::string type = event.at("type").get<std::string>().substr(sizeof("response.") - 1);
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  return types;
}

constexpr const char* kPart = R"("item_id":"msg_ID","output_index":0,"content_index":0)";

TEST_F(ResponsesTest, TextIsStreamed) {
  Json body = ask("What is 12 + 30?");
  body["stream"] = true;
  const ClientResponse response = server_.post("/v1/responses", body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream");
  const std::string place = kPart;
  const auto part = [](const std::string& text) {
    return R"("part":{"type":"output_text","text":")" + text +
           R"(","annotations":[],"logprobs":[]})";
  };
  Golden want;
  want.response("response.created");
  want.response("response.in_progress");
  want.add("response.output_item.added",
           R"("output_index":0,"item":{"id":"msg_ID","type":"message","status":"in_progress",)"
           R"("role":"assistant","content":[]})");
  want.add("response.content_part.added", place + "," + part(""));
  for (const char* piece : {"1", "2", " +", " ", "3", "0", " =", " ", "4", "2"}) {
    want.add("response.output_text.delta", place + R"(,"delta":")" + piece + R"(","logprobs":[])");
  }
  want.add("response.output_text.done", place + R"(,"text":"12 + 30 = 42","logprobs":[])");
  want.add("response.content_part.done", place + "," + part("12 + 30 = 42"));
  want.add("response.output_item.done",
           R"("output_index":0,"item":{"id":"msg_ID","type":"message","status":"completed",)"
           R"("role":"assistant","content":[{"type":"output_text","text":"12 + 30 = 42",)"
           R"("annotations":[],"logprobs":[]}]})");
  want.response("response.completed");
  EXPECT_EQ(masked(response.body), want.text());
  const std::vector<Json> events = events_of(response);
  EXPECT_EQ(events.front().at("response").at("id"), events.back().at("response").at("id"));
  EXPECT_EQ(events.front().at("response").at("status"), "in_progress");
  EXPECT_EQ(events.front().at("response").at("output"), Json::array());
  EXPECT_EQ(events.back().at("response").at("status"), "completed");
  EXPECT_EQ(events.back().at("response").at("output").at(0).at("content").at(0).at("text"),
            "12 + 30 = 42");
}

TEST_F(ResponsesTest, OneResponse) {
  Json body = ask("What is 12 + 30?");
  body["metadata"] = {{"a", "b"}};
  const ClientResponse response = server_.post("/v1/responses", body);
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(masked(response.body),
            R"({"id":"resp_ID","object":"response","created_at":TIME,"status":"completed",)"
            R"("background":false,"error":null,"incomplete_details":null,"model":"demo",)"
            R"("output":[{"id":"msg_ID","type":"message","status":"completed","role":"assistant",)"
            R"("content":[{"type":"output_text","text":"12 + 30 = 42","annotations":[],)"
            R"("logprobs":[]}]}],"previous_response_id":null,"store":true,"truncation":"disabled",)"
            R"("instructions":null,"max_output_tokens":null,"parallel_tool_calls":true,)"
            R"("reasoning":{"effort":"none","summary":null},"temperature":0,)"
            R"("text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":)" +
                Json(server_.service().default_sampling().top_p).dump() +
                R"(,"user":null,"metadata":{"a":"b"},"usage":{"input_tokens":24,)"
                R"("input_tokens_details":{"cached_tokens":0},"output_tokens":10,)"
                R"("output_tokens_details":{"reasoning_tokens":0},"total_tokens":34}})");
}

TEST_F(ResponsesTest, ThoughtsAreItems) {
  Json body = ask("Compute 37 + 33.", "high");
  body["stream"] = true;
  const std::vector<Json> events = events_of(server_.post("/v1/responses", body));
  EXPECT_EQ(types_of(events),
            (std::vector<std::string>{
                "created", "in_progress", "output_item.added", "content_part.added",
                "reasoning_text.delta", "reasoning_text.done", "content_part.done",
                "output_item.done", "output_item.added", "content_part.added", "output_text.delta",
                "output_text.done", "content_part.done", "output_item.done", "completed"}));
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].at("sequence_number"), i);
  const Json& response = events.back().at("response");
  const Json& thought = response.at("output").at(0);
  EXPECT_EQ(thought.at("type"), "reasoning");
  EXPECT_EQ(thought.at("summary"), Json::array());
  EXPECT_EQ(
      thought.at("content"),
      Json::array({{{"type", "reasoning_text"}, {"text", "7 + 3 = 10, 3 + 3 + 1 = 7, so 70."}}}));
  EXPECT_EQ(response.at("output").at(1).at("content").at(0).at("text"), "37 + 33 = 70");
  const Json& usage = response.at("usage");
  EXPECT_GT(usage.at("output_tokens_details").at("reasoning_tokens").get<int>(), 10);
}

TEST_F(ResponsesTest, WhoAsksForASummaryGetsTheThoughtThere) {
  Json body = ask("Compute 37 + 33.", "high");
  body["reasoning"]["summary"] = "auto";
  body["stream"] = true;
  const std::vector<Json> events = events_of(server_.post("/v1/responses", body));
  const std::vector<std::string> types = types_of(events);
  ASSERT_GT(types.size(), 8u);
  EXPECT_EQ(std::vector<std::string>(types.begin() + 2, types.begin() + 8),
            (std::vector<std::string>{"output_item.added", "reasoning_summary_part.added",
                                      "reasoning_summary_text.delta", "reasoning_summary_text.done",
                                      "reasoning_summary_part.done", "output_item.done"}));
  EXPECT_EQ(events[4].at("summary_index"), 0);
  const Json& thought = events.back().at("response").at("output").at(0);
  EXPECT_EQ(thought.at("summary").at(0).at("text"), "7 + 3 = 10, 3 + 3 + 1 = 7, so 70.");
  EXPECT_EQ(thought.at("content"), Json::array());
}

TEST_F(ResponsesTest, CallsAreItemsAndGoBack) {
  Json body = ask("Set a timer for 53 minutes.");
  body["tools"] = Json::array({timer_tool(), {{"type", "web_search"}}});
  body["stream"] = true;
  const std::vector<Json> events = events_of(server_.post("/v1/responses", body));
  EXPECT_EQ(types_of(events),
            (std::vector<std::string>{
                "created", "in_progress", "output_item.added", "function_call_arguments.delta",
                "function_call_arguments.done", "output_item.done", "completed"}));
  std::string arguments;
  for (const Json& event : events) {
    if (event.at("type") == "response.function_call_arguments.delta")
      arguments += event.at("delta").get<std::string>();
  }
  const Json& call = events.back().at("response").at("output").at(0);
  EXPECT_EQ(call.at("type"), "function_call");
  EXPECT_EQ(call.at("name"), "set_timer");
  EXPECT_EQ(call.at("status"), "completed");
  EXPECT_EQ(call.at("arguments"), arguments);
  EXPECT_EQ(parse_json(arguments, "arguments"), (Json{{"minutes", 53}}));

  // The next turn is the same prompt as in the words of /v1/chat/completions.
  body["stream"] = false;
  body["input"] = Json::array({{{"role", "user"}, {"content", "Set a timer for 53 minutes."}},
                               call,
                               {{"type", "function_call_output"},
                                {"call_id", call.at("call_id")},
                                {"output", "{\"ok\": true}"}}});
  const Json again = server_.post("/v1/responses", body).json();
  Json chat = question("Set a timer for 53 minutes.");
  chat["tools"] = Json::array({timer_tool()});
  chat["messages"].push_back(
      {{"role", "assistant"},
       {"content", ""},
       {"tool_calls",
        Json::array({{{"id", "x"},
                      {"type", "function"},
                      {"function", {{"name", "set_timer"}, {"arguments", arguments}}}}})}});
  chat["messages"].push_back(
      {{"role", "tool"}, {"tool_call_id", "x"}, {"content", "{\"ok\": true}"}});
  const Json other = server_.post("/v1/chat/completions", chat).json();
  EXPECT_EQ(again.at("usage").at("input_tokens"), other.at("usage").at("prompt_tokens"));
  EXPECT_EQ(again.at("output").at(0).at("content").at(0).at("text"),
            other.at("choices").at(0).at("message").at("content"));
}

TEST_F(ResponsesTest, ACallOfANamespaceSaysSo) {
  Json body = ask("Set a timer for 53 minutes.");
  body["tools"] = Json::array(
      {{{"type", "namespace"}, {"name", "mcp__clock"}, {"tools", Json::array({timer_tool()})}}});
  const Json call = server_.post("/v1/responses", body).json().at("output").at(0);
  EXPECT_EQ(call.at("name"), "set_timer");
  EXPECT_EQ(call.at("namespace"), "mcp__clock");
  EXPECT_EQ(parse_json(call.at("arguments").get<std::string>(), "arguments"),
            (Json{{"minutes", 53}}));
}

TEST_F(ResponsesTest, ACutAnswerIsIncomplete) {
  Json body = ask("What is 12 + 30?");
  body["max_output_tokens"] = 3;
  const Json response = server_.post("/responses", body).json();
  EXPECT_EQ(response.at("status"), "incomplete");
  EXPECT_EQ(response.at("incomplete_details"), (Json{{"reason", "max_output_tokens"}}));
  EXPECT_EQ(response.at("output").at(0).at("status"), "incomplete");
  EXPECT_EQ(response.at("output").at(0).at("content").at(0).at("text"), "12 +");
  body["stream"] = true;
  EXPECT_EQ(types_of(events_of(server_.post("/v1/responses", body))).back(), "incomplete");
}

TEST_F(ResponsesTest, Errors) {
  Json body = ask("hi");
  body["previous_response_id"] = "resp_1";
  const ClientResponse response = server_.post("/v1/responses", body);
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body,
            R"({"error":{"message":"previous_response_id is \"resp_1\", which is not kept here )"
            R"((any more); send the whole input","type":"invalid_request_error",)"
            R"("param":"previous_response_id","code":"previous_response_not_found"}})");
  std::string text;
  for (int i = 0; i < 600; ++i) text += "frog ";
  body = ask(text);
  body["stream"] = true;
  const ClientResponse large = server_.post("/v1/responses", body);
  EXPECT_EQ(large.status, 400);
  EXPECT_EQ(large.json().at("error").at("code"), "context_length_exceeded");
}

}  // namespace
}  // namespace moeflux::test
