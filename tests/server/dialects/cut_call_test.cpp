// A limit in the middle of a tool call, in every dialect: its markup never is content.
#include <sstream>

#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

constexpr const char* kQuestion = "What is the weather in Paris?";
constexpr int kWholeCall = 60;  // tokens that are more than enough for it

Json city_schema() {
  return {{"type", "object"},
          {"properties", {{"city", {{"type", "string"}}}}},
          {"required", Json::array({"city"})}};
}

// What a client has in the end, whatever its dialect.
struct CutAnswer {
  std::string content, reason;
  int n_calls = 0;
  std::string arguments = {};
};

// The data of a stream whose events have names.
std::vector<Json> named_events(const ClientResponse& response) {
  std::vector<Json> events;
  std::istringstream text(response.body);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("data: ")) events.push_back(parse_json(line.substr(6), "event"));
  }
  if (events.empty()) throw std::runtime_error("no events: " + response.body);
  return events;
}

class CutCallTest : public testing::Test {
 protected:
  CutAnswer chat(int max_tokens, bool stream) {
    Json body = base(max_tokens, stream);
    body["tools"] = Json::array({openai_tool()});
    body["chat_template_kwargs"] = {{"enable_thinking", false}};
    const ClientResponse response = server_.post("/v1/chat/completions", body);
    CutAnswer answer;
    const auto add = [&](const Json& choice, const Json& message) {
      if (!choice.at("finish_reason").is_null()) answer.reason = choice.at("finish_reason");
      if (message.contains("content") && message.at("content").is_string())
        answer.content += message.at("content").get<std::string>();
      for (const Json& call : message.value("tool_calls", Json::array())) {
        answer.n_calls += call.contains("id") ? 1 : 0;
        answer.arguments += call.at("function").at("arguments").get<std::string>();
      }
    };
    if (!stream) {
      const Json choice = response.json().at("choices").at(0);
      add(choice, choice.at("message"));
      return answer;
    }
    for (const std::string& event : response.events()) {
      if (event == "[DONE]") break;
      const Json choice = parse_json(event, "chunk").at("choices").at(0);
      add(choice, choice.at("delta"));
    }
    return answer;
  }

  CutAnswer responses(int max_tokens, bool stream) {
    Json tool = openai_tool().at("function");
    tool["type"] = "function";
    const Json body = {{"input", kQuestion}, {"max_output_tokens", max_tokens},
                       {"temperature", 0},   {"reasoning", {{"effort", "none"}}},
                       {"stream", stream},   {"tools", Json::array({std::move(tool)})}};
    const ClientResponse response = server_.post("/v1/responses", body);
    const Json last = stream ? named_events(response).back().at("response") : response.json();
    CutAnswer answer{.content = {}, .reason = last.at("status")};
    for (const Json& item : last.at("output")) {
      if (item.at("type") == "message") answer.content += item.at("content")[0].at("text");
      if (item.at("type") != "function_call") continue;
      ++answer.n_calls;
      answer.arguments += item.at("arguments");
      if (answer.reason == "incomplete" && !is_whole(answer.arguments)) {
        EXPECT_EQ(item.at("status"), "incomplete");
      }
    }
    return answer;
  }

  CutAnswer anthropic(int max_tokens, bool stream) {
    Json body = base(max_tokens, stream);
    body["tools"] = Json::array({{{"name", "get_weather"},
                                  {"description", "Current weather of a city"},
                                  {"input_schema", city_schema()}}});
    const ClientResponse response = server_.post("/v1/messages", body);
    CutAnswer answer;
    if (!stream) {
      const Json message = response.json();
      answer.reason = message.at("stop_reason");
      for (const Json& block : message.at("content")) {
        if (block.at("type") == "text") answer.content += block.at("text");
        if (block.at("type") != "tool_use") continue;
        ++answer.n_calls;
        answer.arguments = dump_json(block.at("input"));
      }
      return answer;
    }
    for (const Json& event : named_events(response)) {
      if (event.contains("content_block"))
        answer.n_calls += event.at("content_block").at("type") == "tool_use" ? 1 : 0;
      if (!event.contains("delta")) continue;
      answer.content += event.at("delta").value("text", "");
      answer.arguments += event.at("delta").value("partial_json", "");
      answer.reason = event.at("delta").value("stop_reason", "");
    }
    return answer;
  }

  CutAnswer ollama(int max_tokens, bool stream) {
    const Json body = {{"messages", Json::array({{{"role", "user"}, {"content", kQuestion}}})},
                       {"think", false},
                       {"stream", stream},
                       {"tools", Json::array({openai_tool()})},
                       {"options", {{"temperature", 0}, {"num_predict", max_tokens}}}};
    std::istringstream lines(server_.post("/api/chat", body).body);
    CutAnswer answer;
    for (std::string line; std::getline(lines, line);) {
      const Json object = parse_json(line, "line");
      answer.reason = object.value("done_reason", "");
      answer.content += object.at("message").at("content");
      for (const Json& call : object.at("message").value("tool_calls", Json::array())) {
        ++answer.n_calls;
        answer.arguments = dump_json(call.at("function").at("arguments"));
      }
    }
    return answer;
  }

  static bool is_whole(const std::string& arguments) {
    return Json::parse(arguments, nullptr, false) == Json({{"city", "Paris"}});
  }

  // Cuts the answer after every token. `partial` says whether the dialect has a place for arguments
  // that are no JSON yet.
  template <class Ask>
  void expect_no_markup(Ask ask, bool partial, const std::string& cut_reason) {
    int n_cut = 0, n_partial = 0;
    for (int n = 1; n <= kWholeCall; ++n) {
      const CutAnswer answer = ask(n);
      ASSERT_EQ(answer.content, "") << "after " << n << " tokens";
      if (answer.reason != cut_reason) {
        EXPECT_EQ(answer.n_calls, 1);
        EXPECT_TRUE(is_whole(answer.arguments)) << answer.arguments;
        EXPECT_GT(n_cut, 5);
        EXPECT_EQ(n_partial > 0, partial);
        return;
      }
      ++n_cut;
      if (answer.n_calls > 0 && !is_whole(answer.arguments)) ++n_partial;
    }
    ADD_FAILURE() << "the model has not called the tool";
  }

 private:
  static Json base(int max_tokens, bool stream) {
    return {{"messages", Json::array({{{"role", "user"}, {"content", kQuestion}}})},
            {"max_tokens", max_tokens},
            {"temperature", 0},
            {"stream", stream}};
  }
  static Json openai_tool() {
    return {{"type", "function"},
            {"function",
             {{"name", "get_weather"},
              {"description", "Current weather of a city"},
              {"parameters", city_schema()}}}};
  }

  DemoServer server_;
};

TEST_F(CutCallTest, OpenAiChat) {
  for (const bool stream : {false, true})
    expect_no_markup([&](int n) { return chat(n, stream); }, true, "length");
}

TEST_F(CutCallTest, Responses) {
  for (const bool stream : {false, true})
    expect_no_markup([&](int n) { return responses(n, stream); }, true, "incomplete");
}

TEST_F(CutCallTest, Anthropic) {
  for (const bool stream : {false, true})
    expect_no_markup([&](int n) { return anthropic(n, stream); }, stream, "max_tokens");
}

TEST_F(CutCallTest, Ollama) {
  for (const bool stream : {false, true})
    expect_no_markup([&](int n) { return ollama(n, stream); }, false, "length");
}

}  // namespace
}  // namespace moeflux::test
