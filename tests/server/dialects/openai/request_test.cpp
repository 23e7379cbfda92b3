#include <gtest/gtest.h>

#include "engine/engine.h"
#include "server/dialects/openai/openai.h"
#include "server/dialects/request_fields.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

Json chat(const char* more) {
  Json body = parse_json(more, "test");
  body["messages"] = Json::array({{{"role", "user"}, {"content", "hi"}}});
  return body;
}

// The name of the field that a body is refused for; "" when it is not.
std::string refused_param(const Json& body) {
  try {
    read_chat_request(body);
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.type(), "invalid_request_error");
    return error.param().empty() ? "(none)" : error.param();
  }
  return "";
}

TEST(OpenAiRequestTest, FieldsAreRead) {
  const OpenAiRequest request = read_chat_request(chat(R"({
    "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "seed": 42, "n": 3,
    "presence_penalty": 1, "frequency_penalty": -1, "repeat_penalty": 1.5,
    "max_completion_tokens": 9, "max_tokens": 5, "stop": ["a", "b"], "logit_bias": {"7": -100},
    "stream": true, "stream_options": {"include_usage": true}, "logprobs": true,
    "top_logprobs": 4, "return_progress": true, "ignore_eos": true, "tool_choice": "none",
    "parallel_tool_calls": false, "unknown": {"x": 1},
    "chat_template_kwargs": {"enable_thinking": false}})"));
  const GenerationRequest& generation = request.generation;
  EXPECT_EQ(generation.sampling.temperature, 0.5);
  EXPECT_EQ(generation.sampling.top_k, 7);
  EXPECT_EQ(generation.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(generation.sampling.seed, 42u);
  EXPECT_EQ(generation.sampling.logit_bias, (std::vector<std::pair<TokenId, float>>{{7, -100.0f}}));
  EXPECT_EQ(generation.max_tokens, 9);
  EXPECT_EQ(generation.n, 3);
  EXPECT_EQ(generation.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(generation.top_logprobs, 4);
  EXPECT_TRUE(generation.ignore_end);
  EXPECT_FALSE(generation.parallel_tool_calls);
  EXPECT_EQ(generation.thinking.enabled, false);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_TRUE(request.return_progress);
}

TEST(OpenAiRequestTest, NullIsAbsent) {
  const OpenAiRequest request = read_chat_request(
      chat(R"({"temperature": null, "stop": null, "n": null, "max_tokens": null, "tools": null,
               "response_format": null, "stream_options": null, "logit_bias": null})"));
  EXPECT_FALSE(request.generation.sampling.temperature);
  EXPECT_TRUE(request.generation.stop.empty());
  EXPECT_EQ(request.generation.n, 1);
  EXPECT_EQ(request.generation.max_tokens, 0);
}

TEST(OpenAiRequestTest, BadValuesAreRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {R"({"temperature": "hot"})", "temperature"},
      {R"({"n": 0})", "n"},
      {R"({"n": 1000})", "n"},
      {R"({"n": 1.5})", "n"},
      {R"({"max_tokens": 0})", "max_tokens"},
      {R"({"max_completion_tokens": "9"})", "max_completion_tokens"},
      {R"({"stop": 5})", "stop"},
      {R"({"stop": [""]})", "stop"},
      {R"({"stream": "yes"})", "stream"},
      {R"({"stream_options": {"include_usage": 1}})", "stream_options.include_usage"},
      {R"({"logit_bias": {"x": 1}})", "logit_bias"},
      {R"({"logit_bias": {"1": 1000}})", "logit_bias"},
      {R"({"top_logprobs": 3})", "top_logprobs"},
      {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs"},
      {R"({"response_format": {"type": "xml"}})", "response_format.type"},
      {R"({"response_format": "json"})", "response_format"},
      {R"({"response_format": {"type": "json_schema"}})", "response_format"},
      {R"({"reasoning_effort": "enormous"})", "reasoning_effort"},
      {R"({"tools": {}})", "tools"},
      {R"({"chat_template_kwargs": 1})", "chat_template_kwargs"},
  };
  for (const auto& [body, param] : cases) EXPECT_EQ(refused_param(chat(body)), param) << body;
  EXPECT_EQ(refused_param(parse_json("{}", "test")), "messages");
  EXPECT_EQ(refused_param(parse_json(R"({"messages": []})", "test")), "messages");
}

TEST(OpenAiRequestTest, OutputFormatsInAllSpellings) {
  const auto output = [](const char* more) {
    return read_chat_request(chat(more)).generation.output;
  };
  EXPECT_EQ(output("{}").kind, OutputFormat::Kind::Text);
  EXPECT_EQ(output(R"({"response_format": {"type": "json_object"}})").kind,
            OutputFormat::Kind::JsonObject);
  const Json schema = {{"type", "object"}};
  for (
      const char* spelling :
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}})",
       R"({"response_format": {"type": "json_schema", "schema": {"type": "object"}}})",
       R"({"response_format": {"type": "json_object", "schema": {"type": "object"}}})",
       R"({"json_schema": {"type": "object"}})"}) {
    EXPECT_EQ(output(spelling).kind, OutputFormat::Kind::JsonSchema) << spelling;
    EXPECT_EQ(output(spelling).schema, schema) << spelling;
  }
  EXPECT_EQ(output(R"({"grammar": "root ::= \"a\""})").grammar, "root ::= \"a\"");
}

TEST(OpenAiRequestTest, PromptsInAllForms) {
  const auto source = open_source(source_path("models/demo"));
  const auto tokenizer = load_tokenizer(*source);
  const auto prompts = [&](const char* prompt) {
    return read_completion_request(parse_json(fmt::format(R"({{"prompt": {}}})", prompt), "test"),
                                   *tokenizer)
        .generation.prompts;
  };
  const std::vector<TokenId> hello = tokenizer->encode_markup("Hello");
  using Prompts = std::vector<std::vector<TokenId>>;
  EXPECT_EQ(prompts(R"("Hello")"), Prompts{hello});
  EXPECT_EQ(prompts("[1, 2, 3]"), (Prompts{{1, 2, 3}}));
  EXPECT_EQ(prompts(R"(["Hello", "Hello"])"), (Prompts{hello, hello}));
  EXPECT_EQ(prompts("[[1, 2], [3]]"), (Prompts{{1, 2}, {3}}));
  std::vector<TokenId> mixed = hello;
  mixed.insert(mixed.begin(), 7);
  EXPECT_EQ(prompts(R"([7, "Hello"])"), Prompts{mixed});
  for (const char* bad : {"5", "[]", "{}", "[-1]", "[1.5]", "[[null]]", "[true]"})
    EXPECT_THROW(prompts(bad), HttpError) << bad;
}

TEST(RequestFieldsTest, BodiesThatAreNoObjectAreRefused) {
  const auto refused = [](std::string body) {
    try {
      parse_body({.method = "POST", .path = "/", .body = std::move(body)});
    } catch (const HttpError& error) {
      return error.status() == 400;
    }
    return false;
  };
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("[]"));
  EXPECT_TRUE(refused("{"));
  EXPECT_TRUE(refused("{\"a\": \"\xff\"}"));
  EXPECT_TRUE(refused(std::string(100'000, '[')));
  EXPECT_TRUE(refused("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}"));
  EXPECT_FALSE(refused("{\"a\": 1}"));
}

}  // namespace
}  // namespace moeflux::test
