// A last message of the assistant is the beginning of the answer, in every dialect.
#include <gtest/gtest.h>

#include "server/demo_server.h"
#include "server/scripted_model.h"

namespace moeflux::test {
namespace {

Json begun(const std::string& text) {
  Json body = sum_question();
  body["messages"].push_back({{"role", "assistant"}, {"content", text}});
  return body;
}

class BegunAnswersTest : public testing::Test {
 protected:
  std::string content(const Json& body) {
    const ClientResponse response = server_.post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 200) << response.body;
    return response.status == 200 ? response.json()["choices"][0]["message"].value("content", "")
                                  : "";
  }
  std::string refusal(const Json& body) {
    const ClientResponse response = server_.post("/v1/chat/completions", body);
    EXPECT_EQ(response.status, 400) << response.body;
    return response.json()["error"].value("message", "");
  }
  DemoServer server_;
};

TEST_F(BegunAnswersTest, TheAnswerGoesOn) {
  EXPECT_EQ(content(begun("12 + 30")), " = 42");
  EXPECT_EQ(content(begun("12 +")), " 30 = 42");
  EXPECT_EQ(content(begun("12 + ")), "30 = 42");  // no template trims what was begun
  Json parts = sum_question();
  parts["messages"].push_back(
      {{"role", "assistant"}, {"content", Json::array({{{"type", "text"}, {"text", "12 + 30"}}})}});
  EXPECT_EQ(content(parts), " = 42");
}

TEST_F(BegunAnswersTest, InEveryDialect) {
  Json body = begun("12 + 30");
  body["max_tokens"] = 50;
  EXPECT_EQ(server_.post("/v1/messages", body).json()["content"][0]["text"], " = 42");
  Json ollama = body;
  ollama["stream"] = false;
  ollama["think"] = false;
  ollama["options"] = {{"temperature", 0}};
  EXPECT_EQ(server_.post("/api/chat", ollama).json()["message"]["content"], " = 42");
  Json items = {
      {"input", body["messages"]}, {"temperature", 0}, {"reasoning", {{"effort", "none"}}}};
  const Json response = server_.post("/v1/responses", items).json();
  EXPECT_EQ(response["output"][0]["content"][0]["text"], " = 42");
}

TEST_F(BegunAnswersTest, AStreamHasOnlyWhatIsNew) {
  Json body = begun("12 + 30");
  body["stream"] = true;
  std::string text;
  for (const std::string& event : server_.post("/v1/chat/completions", body).events()) {
    if (event == "[DONE]") break;
    const Json chunk = parse_json(event, "chunk");
    text += chunk["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, " = 42");
}

// Nothing of what was begun is said again, though the parser holds blanks back where calls may
// follow.
TEST_F(BegunAnswersTest, WithTools) {
  Json body = begun("12 + ");
  body["tools"] = Json::array(
      {{{"type", "function"},
        {"function", {{"name", "get_weather"}, {"parameters", {{"type", "object"}}}}}}});
  EXPECT_EQ(content(body), "30 = 42");
  body["tool_choice"] = "required";
  EXPECT_EQ(refusal(body),
            "tool_choice demands a call, which the text of the last message cannot go on with");
}

TEST_F(BegunAnswersTest, AThoughtGoesOn) {
  Json body = sum_question();
  body.erase("chat_template_kwargs");
  body["messages"].push_back(
      {{"role", "assistant"}, {"content", ""}, {"reasoning_content", "2 + 0 = 2,"}});
  const Json message = server_.post("/v1/chat/completions", body).json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], " 1 + 3 = 4, so 42.");
  EXPECT_EQ(message["content"], "12 + 30 = 42");
}

TEST_F(BegunAnswersTest, OrBeginsAnew) {
  Json body = begun("12 + 30");
  body["continue_final_message"] = false;
  EXPECT_NE(content(body), " = 42");
  body = begun("12 + 30");
  body["add_generation_prompt"] = true;
  EXPECT_NE(content(body), " = 42");
  body["continue_final_message"] = true;
  EXPECT_EQ(refusal(body), "continue_final_message and add_generation_prompt exclude each other");
  body = sum_question();
  body["continue_final_message"] = true;
  EXPECT_EQ(refusal(body),
            "continue_final_message needs a last message of the assistant with a text and without "
            "calls");
}

// The form is that of the whole answer, begun and new.
TEST_F(BegunAnswersTest, AFormThatIsDemanded) {
  Json body = question("Extract name, age as JSON. Emma is 31 years old.");
  body["messages"].push_back({{"role", "assistant"}, {"content", "{\"name\": \"Emma\", "}});
  body["response_format"] = {
      {"type", "json_schema"},
      {"json_schema",
       {{"schema",
         {{"type", "object"},
          {"properties", {{"name", {{"type", "string"}}}, {"age", {{"type", "integer"}}}}},
          {"required", Json::array({"name", "age"})},
          {"additionalProperties", false}}}}}};
  body["max_tokens"] = 40;
  const Json whole = parse_json("{\"name\": \"Emma\", " + content(body), "answer");
  EXPECT_EQ(whole["name"], "Emma");
  EXPECT_TRUE(whole["age"].is_number_integer());
  body["messages"].back()["content"] = "Emma";
  EXPECT_EQ(refusal(body), "nothing of the form that is demanded begins as the last message does");
}

TEST(BegunAnswers, InChannels) {
  const ScriptedModel model = harmony_model();
  DemoServer server({.model = model.path()});
  Json body = begun("12 + 30");
  const Json prompt = server.post("/apply-template", body).json()["prompt"];
  EXPECT_TRUE(prompt.get<std::string>().ends_with("<|channel|>final<|message|>12 + 30")) << prompt;
  const Json answer =
      server.post("/v1/chat/completions", model.saying(body, " = 42<|return|>")).json();
  EXPECT_EQ(answer["choices"][0]["message"]["content"], " = 42");
}

// ---- stop strings and thoughts

TEST_F(BegunAnswersTest, StopStringsDoNotActInThoughts) {
  Json body = sum_question();
  body.erase("chat_template_kwargs");
  body["stop"] = Json::array({"so ", " ="});
  Json message = server_.post("/v1/chat/completions", body).json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "2 + 0 = 2, 1 + 3 = 4, so 42.");
  EXPECT_EQ(message["content"], "12 + 30");
  body["stop_in_thoughts"] = true;
  message = server_.post("/v1/chat/completions", body).json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "2 + 0");
  EXPECT_EQ(message["content"], "");
}

// ---- what was called functions before

Json weather_functions() {
  return Json::array({{{"name", "get_weather"},
                       {"description", "Get the weather in a city"},
                       {"parameters",
                        {{"type", "object"},
                         {"properties", {{"city", {{"type", "string"}}}}},
                         {"required", Json::array({"city"})}}}}});
}

TEST_F(BegunAnswersTest, FunctionsAsBeforeTools) {
  Json body = question("Is it raining in Rabat?");
  body["functions"] = weather_functions();
  const Json choice = server_.post("/v1/chat/completions", body).json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "function_call");
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["message"]["function_call"],
            (Json{{"name", "get_weather"}, {"arguments", "{\"city\":\"Rabat\"}"}}));
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  body["messages"].push_back(choice["message"]);
  body["messages"].push_back({{"role", "function"},
                              {"name", "get_weather"},
                              {"content", "{\"temperature\": 21, \"sky\": \"rainy\"}"}});
  EXPECT_EQ(content(body), "It is 21 degrees and rainy in Rabat.");
}

TEST_F(BegunAnswersTest, FunctionsInAStream) {
  Json body = question("Is it raining in Rabat?");
  body["functions"] = weather_functions();
  body["function_call"] = {{"name", "get_weather"}};
  body["stream"] = true;
  std::string name, arguments, reason;
  for (const std::string& event : server_.post("/v1/chat/completions", body).events()) {
    if (event == "[DONE]") break;
    const Json choice = parse_json(event, "chunk")["choices"][0];
    if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
    if (!choice["delta"].contains("function_call")) continue;
    name += choice["delta"]["function_call"].value("name", "");
    arguments += choice["delta"]["function_call"].value("arguments", "");
  }
  EXPECT_EQ(name, "get_weather");
  EXPECT_EQ(parse_json(arguments, "arguments"), (Json{{"city", "Rabat"}}));
  EXPECT_EQ(reason, "function_call");
}

TEST_F(BegunAnswersTest, FunctionsThatCannotBeUsed) {
  Json body = question("Hi");
  body["functions"] = Json::array({5});
  EXPECT_EQ(refusal(body), "functions[0] must be an object");
  body["functions"] = weather_functions();
  body["function_call"] = "maybe";
  EXPECT_EQ(refusal(body), "function_call must be \"auto\", \"none\" or an object with a name");
}

// ---- audio and images

TEST_F(BegunAnswersTest, WhatIsNoTextIsRefusedByName) {
  Json body = question("Hi");
  body["modalities"] = Json::array({"text", "audio"});
  EXPECT_EQ(refusal(body), "modalities has \"audio\", but this server answers in text only");
  body["modalities"] = Json::array({"text"});
  body["audio"] = {{"voice", "alloy"}};
  EXPECT_EQ(refusal(body), "audio cannot be written: this server answers in text only");
  body = question("Hi");
  for (const char* type : {"image_url", "input_audio", "file", "video_url"}) {
    body["messages"][0]["content"] = Json::array({{{"type", type}}});
    const std::string why = refusal(body);
    EXPECT_NE(why.find(type), std::string::npos) << why;
    EXPECT_NE(why.find("messages[0].content[0]"), std::string::npos) << why;
  }
}

// ---- timings in every chunk

TEST_F(BegunAnswersTest, TimingsPerToken) {
  Json body = sum_question();
  body["stream"] = true;
  body["timings_per_token"] = true;
  std::vector<std::int64_t> counts;
  const auto events = server_.post("/v1/chat/completions", body).events();
  EXPECT_FALSE(parse_json(events.at(0), "chunk").contains("timings"));
  for (std::size_t i = 1; i + 1 < events.size(); ++i) {
    const Json timings = parse_json(events[i], "chunk").at("timings");
    EXPECT_EQ(timings["prompt_n"], 24);
    EXPECT_GE(timings["predicted_per_second"].get<double>(), 0);
    counts.push_back(timings["predicted_n"]);
  }
  ASSERT_GT(counts.size(), 8u);
  EXPECT_TRUE(std::is_sorted(counts.begin(), counts.end()));
  EXPECT_EQ(counts.front(), 1);
  EXPECT_EQ(counts.back(), 10);
}

}  // namespace
}  // namespace moeflux::test
