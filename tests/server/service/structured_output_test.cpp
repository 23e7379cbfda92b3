// Answers whose form is demanded: by a schema, by a grammar, by tool_choice, by a thinking budget.
#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

class StructuredOutputTest : public testing::Test {
 protected:
  Json ask(Json request, int status = 200) {
    const ClientResponse response = server_.post("/v1/chat/completions", request);
    EXPECT_EQ(response.status, status) << response.body;
    return response.json();
  }
  static std::string content(const Json& body) {
    return body.at("choices").at(0).at("message").at("content").get<std::string>();
  }
  static Json question(const char* text, bool thinking = false) {
    return {{"messages", Json::array({{{"role", "user"}, {"content", text}}})},
            {"chat_template_kwargs", {{"enable_thinking", thinking}}},
            {"max_tokens", 200},
            {"temperature", 0}};
  }
  static Json add_tool() {
    return Json::array(
        {{{"type", "function"},
          {"function",
           {{"name", "add"},
            {"description", "adds two numbers"},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"a", {{"type", "integer"}}}, {"b", {{"type", "integer"}}}}},
              {"required", {"a", "b"}},
              {"additionalProperties", false}}}}}}});
  }

  DemoServer server_;
};

TEST_F(StructuredOutputTest, ASchemaIsKeptAtEveryTemperature) {
  const Json schema = {{"type", "object"},
                       {"properties",
                        {{"name", {{"type", "string"}, {"maxLength", 8}}},
                         {"age", {{"type", "integer"}, {"minimum", 0}, {"maximum", 120}}},
                         {"kind", {{"enum", {"cat", "dog"}}}}}},
                       {"required", {"name", "age", "kind"}},
                       {"additionalProperties", false}};
  for (const double temperature : {0.0, 1.0, 1.5}) {
    Json request = question("Clara is 39 years old and has a dog.");
    request["temperature"] = temperature;
    request["seed"] = 5;
    request["response_format"] = {
        {"type", "json_schema"},
        {"json_schema", {{"name", "pet"}, {"strict", true}, {"schema", schema}}}};
    const Json body = ask(request);
    EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
    const Json value = parse_json(content(body), "answer");
    ASSERT_TRUE(value.is_object()) << content(body);
    EXPECT_EQ(value.size(), 3u);
    EXPECT_TRUE(value.at("name").is_string());
    EXPECT_TRUE(value.at("age").is_number_integer());
    EXPECT_LE(value.at("age").get<int>(), 120);
    EXPECT_TRUE(value.at("kind") == "cat" || value.at("kind") == "dog");
  }
}

TEST_F(StructuredOutputTest, AGrammarIsKept) {
  Json request = question("Is water wet?");
  request["grammar"] = "root ::= \"yes\" | \"no\"";
  const std::string answer = content(ask(request));
  EXPECT_TRUE(answer == "yes" || answer == "no") << answer;
}

TEST_F(StructuredOutputTest, WhatIsNoSchemaIsRefusedByName) {
  Json request = question("x");
  request["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "n"}, {"schema", {{"type", "object"}, {"not", 5}}}}}};
  const Json body = ask(request, 400);
  EXPECT_NE(body.at("error").at("message").get<std::string>().find("/not"), std::string::npos);
  EXPECT_EQ(body.at("error").at("param"), "response_format");
  request = question("x");
  request["grammar"] = "root ::= (";
  EXPECT_EQ(ask(request, 400).at("error").at("param"), "grammar");
}

TEST_F(StructuredOutputTest, WhatDecodingDoesNotKeepIsNamedInAHeader) {
  const auto answer_to = [&](const Json& items, bool stream) {
    Json request = question("Name two colours.");
    request["stream"] = stream;
    request["response_format"] = {{"type", "json_schema"},
                                  {"json_schema",
                                   {{"name", "n"},
                                    {"schema",
                                     {{"type", "object"},
                                      {"properties",
                                       {{"two\nitems",
                                         {{"type", "array"},
                                          {"items", items},
                                          {"uniqueItems", true},
                                          {"minItems", 2},
                                          {"maxItems", 2}}}}},
                                      {"required", {"two\nitems"}}}}}}};
    const ClientResponse response = server_.post("/v1/chat/completions", request);
    EXPECT_EQ(response.status, 200) << response.body;
    return response;
  };
  const auto header = [](const ClientResponse& response, const std::string& name) {
    const auto at = response.headers.find(name);
    return at == response.headers.end() ? std::string() : at->second;
  };
  // Whatever it writes, the two are the same.
  const Json same = {{"type", "integer"}, {"minimum", 7}, {"maximum", 7}};
  const ClientResponse whole = answer_to(same, false);
  EXPECT_EQ(header(whole, "x-schema-not-enforced"), "/properties/two%0Aitems/uniqueItems");
  EXPECT_EQ(header(whole, "x-schema-violation"), "/two%0Aitems: uniqueItems");
  const ClientResponse streamed = answer_to(same, true);
  EXPECT_EQ(header(streamed, "x-schema-not-enforced"), "/properties/two%0Aitems/uniqueItems");
  EXPECT_EQ(header(streamed, "x-schema-violation"), "");
  const ClientResponse kept = answer_to({{"enum", {"red", "blue"}}}, false);
  EXPECT_EQ(header(kept, "x-schema-not-enforced"), "");
  EXPECT_EQ(header(kept, "x-schema-violation"), "");
}

TEST_F(StructuredOutputTest, ADemandedCallIsMade) {
  Json request = question("What is 12 + 30?");
  request["tools"] = add_tool();
  for (const Json& choice :
       {Json("required"), Json{{"type", "function"}, {"function", {{"name", "add"}}}}}) {
    request["tool_choice"] = choice;
    const Json body = ask(request);
    EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "tool_calls");
    const Json& calls = body.at("choices").at(0).at("message").at("tool_calls");
    ASSERT_GE(calls.size(), 1u);
    EXPECT_EQ(calls.at(0).at("function").at("name"), "add");
    const Json arguments =
        parse_json(calls.at(0).at("function").at("arguments").get<std::string>(), "arguments");
    EXPECT_TRUE(arguments.at("a").is_number_integer());
    EXPECT_TRUE(arguments.at("b").is_number_integer());
  }
}

TEST_F(StructuredOutputTest, AThoughtEndsWithItsBudget) {
  Json request = question("What is 46 + 98?", /*thinking=*/true);
  request["thinking_budget"] = 5;
  const Json body = ask(request);
  const Json& message = body.at("choices").at(0).at("message");
  const std::string thought = message.value("reasoning_content", "");
  EXPECT_LT(thought.size(), 30u) << thought;
  EXPECT_FALSE(content(body).empty());
  EXPECT_EQ(content(body).find("</think>"), std::string::npos);
}

}  // namespace
}  // namespace moeflux::test
