// Every reply format through the server: a model that writes a thought, a text and calls, whole and
// streamed, and cut off.
#include <gtest/gtest.h>

#include "server/demo_server.h"
#include "server/scripted_model.h"

namespace moeflux::test {
namespace {

struct Said {
  std::string reasoning, content, reason;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments

  friend bool operator==(const Said&, const Said&) = default;
};
void PrintTo(const Said& said, std::ostream* out) {
  *out << "[" << said.reasoning << "] " << said.content;
  for (const auto& [name, arguments] : said.calls) *out << " " << name << arguments;
  *out << " (" << said.reason << ")";
}

void add_message(const Json& message, Said& said) {
  for (const auto& [key, to] :
       {std::pair{"reasoning_content", &said.reasoning}, std::pair{"content", &said.content}}) {
    if (message.contains(key) && message.at(key).is_string())
      *to += message.at(key).get<std::string>();
  }
  for (const Json& call : message.value("tool_calls", Json::array())) {
    const Json& function = call.at("function");
    if (call.contains("id")) said.calls.emplace_back(function.at("name"), "");
    said.calls.back().second += function.value("arguments", "");
  }
}

class ReplyFormatsTest : public testing::Test {
 protected:
  static Json tools() {
    return Json::parse(R"([{"type": "function", "function": {"name": "get_weather", "parameters":
        {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"]}}}, {"type": "function", "function": {"name": "now"}}])");
  }
  static Json question(bool with_tools = true) {
    Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "Rain in Oslo?"}}})},
                 {"temperature", 0}};
    if (with_tools) body["tools"] = tools();
    return body;
  }
  static Said ask(const DemoServer& server, const Json& body) {
    const ClientResponse response = server.post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 200) << response.body;
    Said said;
    if (!body.value("stream", false)) {
      const Json choice = response.json().at("choices").at(0);
      add_message(choice.at("message"), said);
      said.reason = choice.at("finish_reason");
      return said;
    }
    for (const std::string& event : response.events()) {
      if (event == "[DONE]") break;
      const Json choice = parse_json(event, "chunk").at("choices").at(0);
      add_message(choice.at("delta"), said);
      if (!choice.at("finish_reason").is_null()) said.reason = choice.at("finish_reason");
    }
    return said;
  }
  static DemoOptions options(const ScriptedModel& model) {
    DemoOptions options;
    options.model = model.path();
    options.context = 1024;
    return options;
  }
  // `opens_thought`: the prompt does; the text is what follows the thought, which is closed at
  // once.
  static void expect_said(const ScriptedModel& model, Json body, const std::string& text,
                          const Said& want, bool opens_thought = false) {
    const DemoServer server(options(model));
    if (opens_thought) body["thinking_budget"] = 0;
    body = model.saying(std::move(body), text, opens_thought);
    EXPECT_EQ(ask(server, body), want) << text;
    body["stream"] = true;
    EXPECT_EQ(ask(server, body), want) << text;
    body.erase("logit_bias");  // the markers in letters, perhaps
    EXPECT_EQ(ask(server, body), want) << text;
  }
};

TEST_F(ReplyFormatsTest, Harmony) {
  const ScriptedModel model = harmony_model();
  const std::string thought = "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant";
  expect_said(model, question(),
              thought +
                  "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
                  "{\"city\": \"Oslo\"}",
              {"Look it up.", "", "tool_calls", {{"get_weather", "{\"city\": \"Oslo\"}"}}});
  expect_said(model, question(),
              thought + " to=functions.now<|channel|>commentary json<|message|>{}",
              {"Look it up.", "", "tool_calls", {{"now", "{}"}}});
  expect_said(model, question(/*with_tools=*/false),
              thought + "<|channel|>final<|message|>I cannot know.",
              {"Look it up.", "I cannot know.", "stop", {}});
}

TEST_F(ReplyFormatsTest, Glm) {
  const std::vector<ScriptedModel::Control> controls = {{"<arg_key>", false},
                                                        {"</arg_key>", false},
                                                        {"<arg_value>", false},
                                                        {"</arg_value>", false},
                                                        {"<|observation|>", true, true}};
  Said want{"Look it up.",
            "One moment.",
            "tool_calls",
            {{"get_weather", "{\"city\":\"Oslo\",\"days\":2}"}, {"now", "{}"}}};
  expect_said(ScriptedModel("observations", controls), question(),
              "\n<think>Look it up.</think>\nOne moment.\n<tool_call>get_weather\n<arg_key>city"
              "</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2"
              "</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
              want);
  want.reasoning = "";
  expect_said(
      ScriptedModel("arg-keys", controls), question(),
      "One moment.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
      "<arg_key>days</arg_key><arg_value>2</arg_value></tool_call><tool_call>now</tool_call>",
      want, /*opens_thought=*/true);
}

TEST_F(ReplyFormatsTest, MiniMax) {
  const ScriptedModel model(
      "invokes", {{"<minimax:tool_call>"}, {"</minimax:tool_call>"}, {"[e~[", true, true}});
  expect_said(model, question(),
              "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Oslo"
              "</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
              {"", "", "tool_calls", {{"get_weather", "{\"city\":\"Oslo\"}"}, {"now", "{}"}}},
              /*opens_thought=*/true);
}

TEST_F(ReplyFormatsTest, Gemma) {
  const ScriptedModel model("turns", {{"<|channel>"},
                                      {"<channel|>"},
                                      {"<|tool_call>"},
                                      {"<tool_call|>"},
                                      {"<|\"|>"},
                                      {"<|tool_response>", true, true},
                                      {"<turn|>", true, true}});
  Json body = question();
  body["chat_template_kwargs"] = {{"enable_thinking", true}};
  expect_said(
      model, body,
      "<|channel>thought\nLook it up.\n<channel|><|tool_call>call:get_weather{city:<|\"|>Oslo"
      "<|\"|>,days:2}<tool_call|>",
      {"Look it up.", "", "tool_calls", {{"get_weather", "{\"city\":\"Oslo\",\"days\":2}"}}});
  expect_said(model, question(/*with_tools=*/false), "<|channel>thought\n<channel|>Yes.",
              {"", "Yes.", "stop", {}});
}

TEST_F(ReplyFormatsTest, DeepSeekV4) {
  const std::string dsml =
      "\xEF\xBD\x9C"
      "DSML"
      "\xEF\xBD\x9C";
  Json body = question();
  const std::string call = "\n\n<" + dsml + "tool_calls>\n<" + dsml +
                           "invoke name=\"get_weather\">\n<" + dsml +
                           "parameter name=\"city\" string=\"true\">Oslo</" + dsml +
                           "parameter>\n</" + dsml + "invoke>\n</" + dsml + "tool_calls>";
  const Said want{"", "", "tool_calls", {{"get_weather", "{\"city\":\"Oslo\"}"}}};
  const ScriptedModel model("bars-blocks", {{dsml}});
  expect_said(model, body, call, want);
  body["chat_template_kwargs"] = {{"thinking", true}};
  expect_said(model, body, call, want, /*opens_thought=*/true);
}

// The limit falls on every token: there is no markup in what a client sees.
TEST_F(ReplyFormatsTest, HarmonyCutAnywhere) {
  const ScriptedModel model = harmony_model();
  const DemoServer server(options(model));
  Json body =
      model.saying(question(),
                   "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary"
                   " to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}");
  bool was_cut = false;
  for (int n = 1; n < 100; ++n) {
    body["max_tokens"] = n;
    const Said said = ask(server, body);
    EXPECT_EQ(said.content, "") << n;
    EXPECT_TRUE(std::string("Hm.").starts_with(said.reasoning)) << said.reasoning;
    if (said.reason == "tool_calls") {
      EXPECT_TRUE(was_cut);
      return;
    }
    EXPECT_EQ(said.reason, "length");
    was_cut = true;
  }
  ADD_FAILURE() << "the call never ended";
}

TEST_F(ReplyFormatsTest, HarmonyDemands) {
  const ScriptedModel model = harmony_model();
  const DemoServer server(options(model));
  // A call: the model may think first, so it is kept from that.
  Json body = question();
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  body["tools"][0]["function"]["parameters"] = {
      {"type", "object"},
      {"properties", {{"city", {{"enum", {"Oslo", "Rome"}}}}}},
      {"required", {"city"}},
      {"additionalProperties", false}};
  body["thinking_budget"] = 3;
  const Said called = ask(server, body);
  EXPECT_EQ(called.reason, "tool_calls");
  ASSERT_EQ(called.calls.size(), 1u);
  EXPECT_EQ(called.calls[0].first, "get_weather");
  const Json city = parse_json(called.calls[0].second, "arguments").at("city");
  EXPECT_TRUE(city == "Oslo" || city == "Rome") << city;

  // A form, which is the answer's and not the thought's.
  body = question(/*with_tools=*/false);
  body["thinking_budget"] = 3;
  body["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "n"}, {"schema", {{"enum", {"yes", "no"}}}}}}};
  const Said answered = ask(server, body);
  EXPECT_EQ(answered.reason, "stop");
  EXPECT_TRUE(answered.content == "\"yes\"" || answered.content == "\"no\"") << answered.content;
}

TEST_F(ReplyFormatsTest, EffortsReachTheTemplateOfHarmony) {
  const ScriptedModel model = harmony_model();
  const DemoServer server(options(model));
  const auto prompt = [&](const char* key, const Json& value) {
    Json body = question(false);
    body[key] = value;
    return server.post("/apply-template", body).json().at("prompt").get<std::string>();
  };
  const auto says = [](const std::string& text, const char* what) {
    return text.find(what) != std::string::npos;
  };
  EXPECT_TRUE(says(prompt("temperature", 0), "Reasoning: medium"));
  EXPECT_TRUE(says(prompt("reasoning_effort", "high"), "Reasoning: high"));
  EXPECT_TRUE(says(prompt("reasoning_effort", "minimal"), "Reasoning: low"));
  EXPECT_TRUE(says(prompt("reasoning_effort", "none"), "Reasoning: low"));
  EXPECT_TRUE(says(prompt("reasoning", {{"effort", "max"}}), "Reasoning: high"));
}

TEST_F(ReplyFormatsTest, HistoriesOfSeveralCallsReachTheTemplateOfHarmony) {
  const ScriptedModel model = harmony_model();
  const DemoServer server(options(model));
  Json body = question();
  body["messages"].push_back(Json::parse(R"({"role": "assistant", "content": null,
      "reasoning_content": "Both.", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}},
      {"id": "b", "type": "function", "function": {"name": "get_weather",
       "arguments": "{\"city\": \"Oslo\"}"}}]})"));
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "a"}, {"content", "noon"}});
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "b"}, {"content", "rain"}});
  const std::string prompt = server.post("/apply-template", body).json().at("prompt");
  EXPECT_TRUE(prompt.ends_with(
      "<|start|>assistant<|channel|>analysis<|message|>Both.<|end|>"
      "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>"
      "<|start|>functions.now to=assistant<|channel|>commentary<|message|>\"noon\"<|end|>"
      "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>"
      "{\"city\": \"Oslo\"}<|call|>"
      "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>\"rain\"<|end|>"
      "<|start|>assistant"))
      << prompt;
}

}  // namespace
}  // namespace moeflux::test
