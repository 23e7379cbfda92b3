#include <gtest/gtest.h>

#include "server/dialects/responses/responses.h"
#include "server/http/http.h"

namespace moeflux::test {
namespace {

ResponsesRequest read(const char* text) {
  return read_responses_request(parse_json(text, "test"), ResponseStore());
}

Json messages_of(const char* input) {
  return read_responses_request({{"input", parse_json(input, "test")}}, ResponseStore())
      .generation.messages;
}

// The name of the field that a body is refused for; "" when it is not.
std::string refused_param(const char* text) {
  try {
    read(text);
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param();
  }
  return "";
}

TEST(ResponsesRequestTest, FieldsAreRead) {
  const ResponsesRequest request = read(R"({"input": "hi", "instructions": "Be kind.",
    "stream": true, "store": true, "max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9,
    "parallel_tool_calls": false, "reasoning": {"effort": "low", "summary": "auto"},
    "metadata": {"a": "b"}, "include": ["reasoning.encrypted_content"]})");
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.thought_as_summary);
  const GenerationRequest& generation = request.generation;
  EXPECT_EQ(generation.messages, (Json::array({{{"role", "system"}, {"content", "Be kind."}},
                                               {{"role", "user"}, {"content", "hi"}}})));
  EXPECT_EQ(generation.max_tokens, 9);
  EXPECT_EQ(generation.sampling.temperature, 0.5);
  EXPECT_EQ(generation.sampling.top_p, 0.9);
  EXPECT_EQ(generation.thinking.effort, "low");
  EXPECT_FALSE(generation.parallel_tool_calls);
  EXPECT_EQ(request.echo.at("metadata"), (Json{{"a", "b"}}));
  EXPECT_EQ(request.echo.at("reasoning"), (Json{{"effort", "low"}, {"summary", "auto"}}));
}

TEST(ResponsesRequestTest, ItemsOfOneTurnAreOneMessage) {
  const Json messages = messages_of(R"([
    {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [],
     "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
     "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{\"x\":1}"},
    {"type": "function_call_output", "call_id": "a", "output": "1"},
    {"type": "function_call_output", "call_id": "b",
     "output": [{"type": "input_text", "text": "2"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]},
    {"type": "message", "role": "assistant", "content": "Done."},
    {"type": "reasoning", "summary": [], "encrypted_content": "xyz"},
    {"role": "developer", "content": "Go on."}])");
  ASSERT_EQ(messages.size(), 6u) << messages.dump(1);
  EXPECT_EQ(messages[1].at("reasoning_content"), "hm");
  EXPECT_EQ(messages[1].at("content").at(0).at("text"), "I look.");
  ASSERT_EQ(messages[1].at("tool_calls").size(), 2u);
  EXPECT_EQ(messages[1].at("tool_calls").at(1),
            (Json{{"id", "b"},
                  {"type", "function"},
                  {"function", {{"name", "g"}, {"arguments", "{\"x\":1}"}}}}));
  EXPECT_EQ(messages[2], (Json{{"role", "tool"}, {"tool_call_id", "a"}, {"content", "1"}}));
  EXPECT_EQ(messages[4].at("reasoning_content"), "so");
  EXPECT_EQ(messages[4].at("content"), "Done.");
  EXPECT_EQ(messages[5], (Json{{"role", "developer"}, {"content", "Go on."}}));
}

TEST(ResponsesRequestTest, OtherToolsAreLeftOut) {
  const GenerationRequest request = read(R"({"input": "hi", "tools": [
    {"type": "web_search"}, {"type": "custom", "name": "patch"},
    {"type": "function", "name": "f", "strict": true, "parameters": {"type": "object"}}]})")
                                        .generation;
  EXPECT_EQ(request.tools,
            (Json::array({{{"type", "function"},
                           {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}}}}})));
}

TEST(ResponsesRequestTest, ToolsOfNamespacesAreFunctions) {
  const ResponsesRequest request = read(R"({"input": [
    {"role": "user", "content": "hi"},
    {"type": "function_call", "call_id": "a", "namespace": "mcp__b", "name": "find",
     "arguments": "{}"},
    {"type": "function_call", "call_id": "b", "name": "find", "arguments": "{}"}],
    "tools": [{"type": "namespace", "name": "mcp__a", "tools": [
      {"type": "function", "name": "find", "description": "Finds."}]},
    {"type": "namespace", "name": "mcp__b", "tools": [{"type": "function", "name": "find"}]},
    {"type": "namespace", "name": "functions", "tools": [
      {"type": "function", "name": "run"}, {"type": "custom", "name": "patch"}]}]})");
  const GenerationRequest& generation = request.generation;
  ASSERT_EQ(generation.tools.size(), 3u);
  EXPECT_EQ(generation.tools[0].at("function"),
            (Json{{"name", "find"}, {"description", "Finds."}}));
  EXPECT_EQ(generation.tools[1].at("function").at("name"), "mcp__b__find");
  EXPECT_EQ(generation.tools[2].at("function").at("name"), "run");
  EXPECT_EQ(request.tools.names.at("find").space, "mcp__a");
  EXPECT_EQ(request.tools.names.at("mcp__b__find").name, "find");
  EXPECT_FALSE(request.tools.names.contains("run"));
  const Json& calls = generation.messages.at(1).at("tool_calls");
  EXPECT_EQ(calls.at(0).at("function").at("name"), "mcp__b__find");
  EXPECT_EQ(calls.at(1).at("function").at("name"), "find");
}

TEST(ResponsesRequestTest, AllowedToolsAreFewer) {
  const GenerationRequest request = read(R"({"input": "hi", "tools": [
    {"type": "function", "name": "f"}, {"type": "function", "name": "g"}],
    "tool_choice": {"type": "allowed_tools", "mode": "required",
                    "tools": [{"type": "function", "name": "g"}]}})")
                                        .generation;
  EXPECT_EQ(request.tool_choice, "required");
  ASSERT_EQ(request.tools.size(), 1u);
  EXPECT_EQ(request.tools[0].at("function").at("name"), "g");
}

TEST(ResponsesRequestTest, FormatsOfText) {
  using Kind = OutputFormat::Kind;
  const auto format = [](const char* text) {
    return read_responses_request(
               {{"input", "hi"}, {"text", {{"format", parse_json(text, "test")}}}}, ResponseStore())
        .generation.output;
  };
  EXPECT_EQ(format(R"({"type": "text"})").kind, Kind::Text);
  EXPECT_EQ(format(R"({"type": "json_object"})").kind, Kind::JsonObject);
  const OutputFormat schema =
      format(R"({"type": "json_schema", "name": "x", "schema": {"type": "object"}})");
  EXPECT_EQ(schema.kind, Kind::JsonSchema);
  EXPECT_EQ(schema.schema, (Json{{"type", "object"}}));
}

TEST(ResponsesRequestTest, WhatCannotBeUsedIsRefusedByName) {
  EXPECT_EQ(refused_param(R"({})"), "input");
  EXPECT_EQ(refused_param(R"({"input": []})"), "input");
  EXPECT_EQ(refused_param(R"({"input": ["x"]})"), "input[0]");
  EXPECT_EQ(refused_param(R"({"input": [{"content": "x"}]})"), "input[0].role");
  EXPECT_EQ(refused_param(R"({"input": [{"role": "user"}]})"), "input[0].content");
  EXPECT_EQ(refused_param(R"({"input": [{"role": "user", "content": 5}]})"), "input[0].content");
  EXPECT_EQ(refused_param(R"({"input": [{"role": "robot", "content": ""}]})"), "input[0].role");
  EXPECT_EQ(refused_param(R"({"input": [{"type": "reasoning", "summary": []}]})"), "input");
  EXPECT_EQ(refused_param(R"({"input": [{"type": "item_reference", "id": "x"}]})"), "input[0].id");
  EXPECT_EQ(refused_param(R"({"input": [{"type": "function_call", "name": "f"}]})"),
            "input[0].call_id");
  EXPECT_EQ(refused_param(R"({"input": [{"type": "function_call_output", "call_id": "f"}]})"),
            "input[0].output");
  EXPECT_EQ(refused_param(R"({"input": [{"type": "reasoning", "content": ["x"]}]})"),
            "input[0].content");
  EXPECT_EQ(refused_param(R"({"input": "x", "previous_response_id": "resp_1"})"),
            "previous_response_id");
  EXPECT_EQ(refused_param(R"({"input": "x", "conversation": "c"})"), "conversation");
  EXPECT_EQ(refused_param(R"({"input": "x", "background": true, "store": false})"), "background");
  EXPECT_EQ(refused_param(R"({"input": "x", "include": ["everything"]})"), "include");
  EXPECT_EQ(refused_param(R"({"input": "x", "max_output_tokens": 0})"), "max_output_tokens");
  EXPECT_EQ(refused_param(R"({"input": "x", "reasoning": {"effort": "huge"}})"), "reasoning");
  EXPECT_EQ(refused_param(R"({"input": "x", "text": {"format": {"type": "xml"}}})"),
            "text.format.type");
  EXPECT_EQ(refused_param(R"({"input": "x", "text": {"format": {"type": "json_schema"}}})"),
            "text.format.schema");
  EXPECT_EQ(refused_param(R"({"input": "x", "tools": [3]})"), "tools");
}

}  // namespace
}  // namespace moeflux::test
