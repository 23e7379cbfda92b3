#include <gtest/gtest.h>

#include "engine/engine.h"
#include "server/dialects/ollama/ollama.h"
#include "server/http/http.h"
#include "support/paths.h"

namespace moeflux::test {
namespace {

OllamaRequest chat(const char* text) {
  return read_ollama_chat(parse_json(text, "test"), 512);
}

// The name of the field that a chat is refused for; "" when it is not.
std::string refused_param(const char* text) {
  try {
    chat(text);
  } catch (const HttpError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param();
  }
  return "";
}

TEST(OllamaRequestTest, OptionsAreRead) {
  const OllamaRequest request = chat(R"({"model": "demo:latest", "keep_alive": "5m",
    "messages": [{"role": "user", "content": "hi"}], "logprobs": true, "top_logprobs": 2,
    "options": {"num_predict": 9, "num_ctx": 512, "temperature": 0.5, "top_k": 7, "top_p": 0.9,
                "min_p": 0.1, "seed": 42, "stop": ["a", "b"], "repeat_penalty": 1.5,
                "presence_penalty": 1, "frequency_penalty": -1, "num_gpu": 99, "mirostat": 0}})");
  EXPECT_EQ(request.model, "demo:latest");
  EXPECT_TRUE(request.stream);
  EXPECT_FALSE(request.only_load);
  const GenerationRequest& generation = request.generation;
  EXPECT_EQ(generation.max_tokens, 9);
  EXPECT_EQ(generation.sampling.temperature, 0.5);
  EXPECT_EQ(generation.sampling.top_k, 7);
  EXPECT_EQ(generation.sampling.top_p, 0.9);
  EXPECT_EQ(generation.sampling.min_p, 0.1);
  EXPECT_EQ(generation.sampling.seed, 42u);
  EXPECT_EQ(generation.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(generation.sampling.presence_penalty, 1);
  EXPECT_EQ(generation.sampling.frequency_penalty, -1);
  EXPECT_EQ(generation.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(generation.top_logprobs, 2);
  EXPECT_FALSE(generation.stream_arguments);
}

TEST(OllamaRequestTest, NoLimitIsNegative) {
  EXPECT_EQ(chat(R"({"options": {"num_predict": -1}})").generation.max_tokens, 0);
  EXPECT_EQ(chat(R"({"options": {"num_predict": -2}})").generation.max_tokens, 0);
}

TEST(OllamaRequestTest, ThinkIsASwitchOrALevel) {
  EXPECT_EQ(chat(R"({})").generation.thinking.enabled, std::nullopt);
  EXPECT_EQ(chat(R"({"think": false})").generation.thinking.enabled, false);
  EXPECT_EQ(chat(R"({"think": true})").generation.thinking.enabled, true);
  const ThinkingChoice low = chat(R"({"think": "low"})").generation.thinking;
  EXPECT_EQ(low.enabled, true);
  EXPECT_EQ(low.effort, "low");
  EXPECT_EQ(low.budget, 2048);
}

TEST(OllamaRequestTest, FormatIsJsonOrASchema) {
  using Kind = OutputFormat::Kind;
  EXPECT_EQ(chat(R"({"format": ""})").generation.output.kind, Kind::Text);
  EXPECT_EQ(chat(R"({"format": "json"})").generation.output.kind, Kind::JsonObject);
  const OutputFormat schema = chat(R"({"format": {"type": "object"}})").generation.output;
  EXPECT_EQ(schema.kind, Kind::JsonSchema);
  EXPECT_EQ(schema.schema, (Json{{"type", "object"}}));
}

TEST(OllamaRequestTest, MessagesBecomeThoseOfAllDialects) {
  const OllamaRequest request = chat(R"({"stream": false, "messages": [
    {"role": "assistant", "content": "", "thinking": "hm",
     "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
    {"role": "tool", "tool_name": "f", "content": "2"},
    {"role": "user", "content": "go on", "images": []}]})");
  EXPECT_FALSE(request.stream);
  const Json& messages = request.generation.messages;
  EXPECT_EQ(messages[0].at("reasoning_content"), "hm");
  EXPECT_FALSE(messages[0].contains("thinking"));
  EXPECT_EQ(messages[1].at("name"), "f");
  EXPECT_EQ(messages[2].at("content"), "go on");
}

TEST(OllamaRequestTest, WhatCannotBeUsedIsRefusedByName) {
  EXPECT_EQ(refused_param(R"({"messages": {}})"), "messages");
  EXPECT_EQ(refused_param(R"({"messages": ["hi"]})"), "messages");
  EXPECT_EQ(refused_param(R"({"messages": [{"role": "user", "images": ["aGk="]}]})"),
            "messages[0].images");
  EXPECT_EQ(refused_param(R"({"stream": "no"})"), "stream");
  EXPECT_EQ(refused_param(R"({"think": "a lot"})"), "think");
  EXPECT_EQ(refused_param(R"({"think": 3})"), "think");
  EXPECT_EQ(refused_param(R"({"format": "xml"})"), "format");
  EXPECT_EQ(refused_param(R"({"options": []})"), "options");
  EXPECT_EQ(refused_param(R"({"options": {"num_ctx": 513}})"), "options.num_ctx");
  EXPECT_EQ(refused_param(R"({"options": {"temperature": "hot"}})"), "options.temperature");
  EXPECT_EQ(refused_param(R"({"model": 7})"), "model");
  const std::string long_name = R"({"model": ")" + std::string(257, 'x') + R"("})";
  EXPECT_EQ(refused_param(long_name.c_str()), "model");
}

TEST(OllamaRequestTest, NothingToAnswerIsALoad) {
  EXPECT_TRUE(chat(R"({})").only_load);
  EXPECT_TRUE(chat(R"({"messages": []})").only_load);
}

class OllamaGenerateTest : public testing::Test {
 protected:
  OllamaGenerateTest() : engine_(source_path("models/demo"), {.n_threads = 1}) {}
  OllamaRequest generate(const char* text) const {
    return read_ollama_generate(parse_json(text, "test"), 512, engine_.tokenizer());
  }
  std::string refused_param(const char* text) const {
    try {
      generate(text);
    } catch (const HttpError& error) {
      return error.param();
    }
    return "";
  }
  Engine engine_;
};

TEST_F(OllamaGenerateTest, PromptAndSystemAreAChat) {
  const Json messages = generate(R"({"system": "Be kind.", "prompt": "hi"})").generation.messages;
  EXPECT_EQ(messages, (Json::array({{{"role", "system"}, {"content", "Be kind."}},
                                    {{"role", "user"}, {"content", "hi"}}})));
}

TEST_F(OllamaGenerateTest, RawIsTheTextItself) {
  const OllamaRequest request = generate(R"({"raw": true, "prompt": "<|im_start|>user\n"})");
  EXPECT_TRUE(request.generation.messages.is_null());
  ASSERT_EQ(request.generation.prompts.size(), 1u);
  EXPECT_EQ(request.generation.prompts[0], (std::vector<TokenId>{2194, 313, 198}));
}

TEST_F(OllamaGenerateTest, WhatIsNotSupportedIsSaid) {
  EXPECT_TRUE(generate(R"({"template": "", "suffix": "", "context": []})").only_load);
  EXPECT_EQ(refused_param(R"({"prompt": "a", "template": "x"})"), "template");
  EXPECT_EQ(refused_param(R"({"prompt": "a", "suffix": "x"})"), "suffix");
  EXPECT_EQ(refused_param(R"({"prompt": "a", "context": [1]})"), "context");
  EXPECT_EQ(refused_param(R"({"prompt": "a", "images": ["aGk="]})"), "images");
  EXPECT_EQ(refused_param(R"({"prompt": 5})"), "prompt");
}

}  // namespace
}  // namespace moeflux::test
