#include "server/dialects/anthropic/request.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace moeflux::test
