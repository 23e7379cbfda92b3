#include <gtest/gtest.h>

#include "server/dialects/anthropic/anthropic.h"
#include "server/http/http.h"

namespace moeflux::test {
namespace {

Json body(const char* more) {
  Json result = {{"model", "any"},
                 {"max_tokens", 100},
                 {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
  result.update(parse_json(more, "test"));
  return result;
}

AnthropicRequest read(const char* more) {
  return read_anthropic_request(body(more));
}

std::string refusal(const char* more) {
  try {
    read(more);
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return "accepted";
}

TEST(AnthropicRequestTest, Defaults) {
  const AnthropicRequest request = read(R"({"metadata": {"user_id": "u"}, "unheard_of": [1]})");
  EXPECT_FALSE(request.stream);
  EXPECT_TRUE(request.shows_thoughts);
  EXPECT_EQ(request.generation.max_tokens, 100);
  EXPECT_EQ(request.generation.thinking.enabled, false);
  EXPECT_TRUE(request.generation.tools.is_null());
  EXPECT_TRUE(request.generation.parallel_tool_calls);
  EXPECT_FALSE(request.generation.stream_arguments);
  EXPECT_EQ(request.generation.sampling.temperature, std::nullopt);
}

TEST(AnthropicRequestTest, SamplingAndStops) {
  const GenerationRequest request =
      read(R"({"temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["a", "b"],
               "stream": true})")
          .generation;
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.stream_arguments);
}

TEST(AnthropicRequestTest, ToolsOfTheClientAreKept) {
  const Json tools = read(R"({"tools": [
      {"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {}},
      {"type": "web_search_20250305", "name": "web_search"},
      {"type": "custom", "name": "g", "input_schema": {}}]})")
                         .generation.tools;
  EXPECT_EQ(tools, parse_json(R"([
      {"type": "function", "function": {"name": "f", "description": "d",
                                        "parameters": {"type": "object"}}},
      {"type": "function", "function": {"name": "g", "parameters": {}}}])",
                              "test"));
}

TEST(AnthropicRequestTest, ToolChoices) {
  const auto choice = [](const char* more) { return read(more).generation.tool_choice; };
  EXPECT_EQ(choice("{}"), nullptr);
  EXPECT_EQ(choice(R"({"tool_choice": {"type": "auto"}})"), "auto");
  EXPECT_EQ(choice(R"({"tool_choice": {"type": "any"}})"), "any");
  EXPECT_EQ(choice(R"({"tool_choice": {"type": "none"}})"), "none");
  EXPECT_EQ(choice(R"({"tool_choice": {"type": "tool", "name": "f"}})"),
            (Json{{"type", "tool"}, {"name", "f"}}));
  EXPECT_FALSE(read(R"({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}})")
                   .generation.parallel_tool_calls);
}

TEST(AnthropicRequestTest, Thinking) {
  const auto thinking = [](const char* more) { return read(more).generation.thinking; };
  EXPECT_EQ(thinking(R"({"thinking": {"type": "disabled"}})").enabled, false);
  const ThinkingChoice enabled =
      thinking(R"({"thinking": {"type": "enabled", "budget_tokens": 2000}})");
  EXPECT_EQ(enabled.enabled, true);
  EXPECT_EQ(enabled.budget, 2000);
  const ThinkingChoice adaptive =
      thinking(R"({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}})");
  EXPECT_EQ(adaptive.enabled, true);
  EXPECT_EQ(adaptive.effort, "low");
  EXPECT_EQ(thinking(R"({"output_config": {"effort": "low"}})").enabled, false);
  EXPECT_FALSE(read(R"({"thinking": {"type": "adaptive", "display": "omitted"}})").shows_thoughts);
}

TEST(AnthropicRequestTest, OutputFormats) {
  for (const char* spelling :
       {R"({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}})",
        R"({"output_format": {"type": "json_schema", "schema": {"type": "object"}}})"}) {
    const OutputFormat output = read(spelling).generation.output;
    EXPECT_EQ(output.kind, OutputFormat::Kind::JsonSchema);
    EXPECT_EQ(output.schema, (Json{{"type", "object"}}));
  }
}

TEST(AnthropicRequestTest, RefusalsNameTheField) {
  EXPECT_EQ(refusal(R"({"max_tokens": null})"), "max_tokens is missing");
  EXPECT_NE(refusal(R"({"max_tokens": 0})").find("max_tokens"), std::string::npos);
  EXPECT_EQ(refusal(R"({"stream": "yes"})"), "stream must be true or false");
  EXPECT_EQ(refusal(R"({"thinking": {"type": "deep"}})"),
            "thinking.type is \"deep\", but must be enabled, disabled or adaptive");
  EXPECT_EQ(refusal(R"({"tool_choice": {"type": "some"}})"),
            "tool_choice.type is \"some\", but must be auto, any, tool or none");
  EXPECT_EQ(refusal(R"({"tool_choice": {"type": "tool"}})"), "tool_choice.name is missing");
  EXPECT_EQ(refusal(R"({"tools": [{"name": "f"}]})"), "tools.0.input_schema is missing");
  EXPECT_EQ(refusal(R"({"output_config": {"format": {"type": "xml"}}})"),
            "output_config.format.type is \"xml\", but must be json_schema");
  EXPECT_NE(refusal(R"({"output_config": {"effort": "huge"}})").find("huge"), std::string::npos);
}

TEST(AnthropicRequestTest, CountingNeedsNoLimit) {
  Json counted = body("{}");
  counted.erase("max_tokens");
  EXPECT_EQ(read_anthropic_prompt(counted).messages.size(), 1u);
}

// ---- the system prompt and the messages

Json messages_of(const char* body) {
  return read_anthropic_prompt(parse_json(body, "test")).messages;
}

std::string messages_refusal(const char* body) {
  try {
    messages_of(body);
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return "accepted";
}

TEST(AnthropicMessagesTest, TextInBothForms) {
  const Json expected = parse_json(R"([
    {"role": "system", "content": "Be kind.\n\nBe brief."},
    {"role": "user", "content": "Hello\nthere"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Bye"}])",
                                   "test");
  EXPECT_EQ(messages_of(R"({
    "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
               {"type": "text", "text": "Be brief."}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"},
                                              {"type": "text", "text": "there"}]},
                 {"role": "assistant", "content": [{"type": "text", "text": "Hi"},
                                                   {"type": "text", "text": "."}]},
                 {"role": "user", "content": "Bye"}]})"),
            expected);
  EXPECT_EQ(messages_of(R"({"system": "Be kind.\n\nBe brief.",
    "messages": [{"role": "user", "content": "Hello"}, {"role": "user", "content": "there"},
                 {"role": "assistant", "content": "Hi"}, {"role": "assistant", "content": "."},
                 {"role": "user", "content": "Bye"}]})"),
            expected);
}

TEST(AnthropicMessagesTest, CallsAndTheirResults) {
  EXPECT_EQ(messages_of(R"({"messages": [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": [
      {"type": "thinking", "thinking": "I must look.", "signature": "x"},
      {"type": "redacted_thinking", "data": "xyz"},
      {"type": "text", "text": "Let me see."},
      {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rabat"}},
      {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}]},
    {"role": "user", "content": [
      {"type": "text", "text": "Here."},
      {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
      {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true,
       "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "clock"}]}]}]})"),
            parse_json(R"([
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "Let me see.", "reasoning_content": "I must look.",
     "tool_calls": [
       {"id": "toolu_1", "type": "function",
        "function": {"name": "get_weather", "arguments": {"city": "Rabat"}}},
       {"id": "toolu_2", "type": "function", "function": {"name": "now", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny"},
    {"role": "tool", "tool_call_id": "toolu_2", "content": "Error: no\nclock"},
    {"role": "user", "content": "Here."}])",
                       "test"));
}

TEST(AnthropicMessagesTest, DocumentsOfText) {
  EXPECT_EQ(messages_of(R"({"messages": [{"role": "user", "content": [
    {"type": "document", "title": "A", "source": {"type": "text", "media_type": "text/plain",
                                                  "data": "One."}},
    {"type": "text", "text": "Read."}]}]})"),
            parse_json(R"([{"role": "user", "content": "A\nOne.\nRead."}])", "test"));
}

TEST(AnthropicMessagesTest, WhatChangesWithoutMeaningIsLeftOut) {
  const auto first_of = [](const char* system) {
    const Json body = {{"system", system},
                       {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
    return read_anthropic_prompt(body).messages.at(0).at("content").get<std::string>();
  };
  EXPECT_EQ(first_of("a\nx-anthropic-billing-header: cch=12;\nb\n"), "a\nb\n");
  EXPECT_EQ(first_of("x-anthropic-billing-header: cch=12;"), "Hi");
  EXPECT_EQ(first_of("see x-anthropic-billing-header: y"), "see x-anthropic-billing-header: y");
  const auto with = [](const char* checksum) {
    return read_anthropic_prompt(
               {{"system",
                 Json::array(
                     {{{"type", "text"},
                       {"text", std::string("x-anthropic-billing-header: cc_version=2.1.9; cch=") +
                                    checksum + ";"}},
                      {{"type", "text"}, {"text", "You write code."}}})},
                {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}})
        .messages;
  };
  EXPECT_EQ(with("0ab31"), with("fe120"));
  EXPECT_EQ(with("0ab31").at(0), (Json{{"role", "system"}, {"content", "You write code."}}));
}

TEST(AnthropicMessagesTest, RefusalsNameTheBlock) {
  EXPECT_EQ(messages_refusal(R"({"messages": []})"),
            "messages must be a list of at least one message");
  EXPECT_EQ(messages_refusal(R"({})"), "messages must be a list of at least one message");
  EXPECT_EQ(messages_refusal(R"({"messages": [5]})"), "messages.0 must be an object");
  EXPECT_EQ(messages_refusal(R"({"messages": [{"role": "tool", "content": ""}]})"),
            "messages.0.role is \"tool\", but must be user or assistant");
  EXPECT_EQ(messages_refusal(R"({"messages": [{"role": "user"}]})"),
            "messages.0.content is missing");
  EXPECT_EQ(messages_refusal(R"({"messages": [{"role": "user", "content": 5}]})"),
            "messages.0.content must be a string or a list of blocks");
  EXPECT_EQ(messages_refusal(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
            "messages.0.content.0.type is \"image\", but this server reads text only: leave images "
            "out");
  EXPECT_EQ(messages_refusal(R"({"messages": [{"role": "user", "content": [
              {"type": "tool_result", "tool_use_id": "toolu_9", "content": "x"}]}]})"),
            "messages.0.content.0.tool_use_id is \"toolu_9\", but no tool_use before it has this "
            "id");
  EXPECT_EQ(messages_refusal(R"({"messages": [{"role": "assistant", "content": [
              {"type": "tool_use", "id": "a", "name": "f", "input": "x"}]}]})"),
            "messages.0.content.0.input must be an object");
  EXPECT_EQ(messages_refusal(R"({"system": 5, "messages": [{"role": "user", "content": "a"}]})"),
            "system must be a string or a list of blocks");
}

// The official clients' tool runners look for this code and then send everything.
TEST(AnthropicRequestTest, AThreadIsRefusedByItsCode) {
  try {
    read(R"({"thread": {"type": "continue", "previous_message_id": "msg_1"}, "messages": []})");
    FAIL() << "accepted";
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.code(), "thread_unsupported_request");
    EXPECT_EQ(error.param(), "thread");
  }
}

TEST(AnthropicRequestTest, AnAnswerMayBeBegun) {
  EXPECT_EQ(read("{}").generation.continues, std::nullopt);
  EXPECT_EQ(read(R"({"continue_final_message": false})").generation.continues, false);
  EXPECT_EQ(read(R"({"continue_final_message": true})").generation.continues, true);
  EXPECT_EQ(read(R"({"add_generation_prompt": true})").generation.continues, false);
  EXPECT_EQ(refusal(R"({"add_generation_prompt": true, "continue_final_message": true})"),
            "continue_final_message and add_generation_prompt exclude each other");
}

}  // namespace
}  // namespace moeflux::test
