#include "server/dialects/anthropic/history.h"

#include <gtest/gtest.h>

#include "server/http/http.h"

namespace moeflux::test {
namespace {

Json read(const char* body) {
  return read_anthropic_messages(parse_json(body, "test"));
}

std::string refusal(const char* body) {
  try {
    read(body);
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.what();
  }
  return "accepted";
}

TEST(AnthropicHistoryTest, TextInBothForms) {
  const Json expected = parse_json(R"([
    {"role": "system", "content": "Be kind.\n\nBe brief."},
    {"role": "user", "content": "Hello\nthere"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Bye"}])",
                                   "test");
  EXPECT_EQ(read(R"({
    "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
               {"type": "text", "text": "Be brief."}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"},
                                              {"type": "text", "text": "there"}]},
                 {"role": "assistant", "content": [{"type": "text", "text": "Hi"},
                                                   {"type": "text", "text": "."}]},
                 {"role": "user", "content": "Bye"}]})"),
            expected);
  EXPECT_EQ(read(R"({"system": "Be kind.\n\nBe brief.",
    "messages": [{"role": "user", "content": "Hello"}, {"role": "user", "content": "there"},
                 {"role": "assistant", "content": "Hi"}, {"role": "assistant", "content": "."},
                 {"role": "user", "content": "Bye"}]})"),
            expected);
}

TEST(AnthropicHistoryTest, CallsAndTheirResults) {
  EXPECT_EQ(read(R"({"messages": [
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

TEST(AnthropicHistoryTest, DocumentsOfText) {
  EXPECT_EQ(read(R"({"messages": [{"role": "user", "content": [
    {"type": "document", "title": "A", "source": {"type": "text", "media_type": "text/plain",
                                                  "data": "One."}},
    {"type": "text", "text": "Read."}]}]})"),
            parse_json(R"([{"role": "user", "content": "A\nOne.\nRead."}])", "test"));
}

TEST(AnthropicHistoryTest, WhatChangesWithoutMeaningIsLeftOut) {
  EXPECT_EQ(without_billing_lines("a\nx-anthropic-billing-header: cch=12;\nb\n"), "a\nb\n");
  EXPECT_EQ(without_billing_lines("x-anthropic-billing-header: cch=12;"), "");
  EXPECT_EQ(without_billing_lines("see x-anthropic-billing-header: y"),
            "see x-anthropic-billing-header: y");
  const auto with = [](const char* checksum) {
    return read_anthropic_messages(
        {{"system",
          Json::array({{{"type", "text"},
                        {"text", std::string("x-anthropic-billing-header: cc_version=2.1.9; cch=") +
                                     checksum + ";"}},
                       {{"type", "text"}, {"text", "You write code."}}})},
         {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}});
  };
  EXPECT_EQ(with("0ab31"), with("fe120"));
  EXPECT_EQ(with("0ab31").at(0), (Json{{"role", "system"}, {"content", "You write code."}}));
}

TEST(AnthropicHistoryTest, RefusalsNameTheBlock) {
  EXPECT_EQ(refusal(R"({"messages": []})"), "messages must be a list of at least one message");
  EXPECT_EQ(refusal(R"({})"), "messages must be a list of at least one message");
  EXPECT_EQ(refusal(R"({"messages": [5]})"), "messages.0 must be an object");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "tool", "content": ""}]})"),
            "messages.0.role is \"tool\", but must be user or assistant");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "user"}]})"), "messages.0.content is missing");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "user", "content": 5}]})"),
            "messages.0.content must be a string or a list of blocks");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
            "messages.0.content.0.type is \"image\", but this server reads text only: leave images "
            "out");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "user", "content": [
              {"type": "tool_result", "tool_use_id": "toolu_9", "content": "x"}]}]})"),
            "messages.0.content.0.tool_use_id is \"toolu_9\", but no tool_use before it has this "
            "id");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "assistant", "content": [
              {"type": "tool_use", "id": "a", "name": "f", "input": "x"}]}]})"),
            "messages.0.content.0.input must be an object");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "user", "content": "a"},
                                     {"role": "assistant", "content": "I"}]})"),
            "messages must end with a user's: an answer cannot be begun for the model");
  EXPECT_EQ(refusal(R"({"system": 5, "messages": [{"role": "user", "content": "a"}]})"),
            "system must be a string or a list of blocks");
}

}  // namespace
}  // namespace moeflux::test
