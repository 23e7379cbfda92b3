// Templates write calls, and the format found for them reads the same calls back.
#include "text/replies/reply_format.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/file.h"
#include "support/paths.h"
#include "support/released.h"
#include "text/replies/reply_history.h"
#include "text/tokenizer/tiny_tokenizer.h"

namespace moeflux {
namespace {

ChatTemplate load(const std::string& path) {
  return ChatTemplate(read_text_file(path, 1 << 20), path,
                      {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
}

Json tools() {
  return Json::parse(R"([{"type": "function", "function": {"name": "search", "parameters": {
      "type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"},
      "exact": {"type": "boolean"}, "filters": {"type": "object"}, "after": {"type": ["string",
      "null"]}, "sites": {"type": "array"}}}}}, {"type": "function", "function": {"name": "now",
      "parameters": {"type": "object", "properties": {}}}}])");
}

// What the template writes for the last message, an assistant's: the text of a model's reply.
std::string rendered_reply(const ChatTemplate& chat, const ReplyProfile& profile,
                           const Json& assistant) {
  ChatRequest request;
  request.messages = normalize_messages(
      Json::array({Json{{"role", "user"}, {"content", "the_question"}}, assistant}), profile);
  request.tools = tools();
  request.add_generation_prompt = false;
  std::string text = chat.render(request).text;
  text.erase(0, text.rfind("the_question"));
  for (const std::string_view turn :
       {"<|im_start|>assistant\n", "<|im_assistant|>assistant<|im_middle|>", "<|assistant|>",
        "]~b]ai\n", "<|turn>model\n",
        "\xEF\xBD\x9C"
        "Assistant\xEF\xBD\x9C>"}) {
    const std::size_t at = text.find(turn);
    if (at != std::string::npos) text.erase(0, at + turn.size());
  }
  // The end of a thought that never began belongs to the prompt.
  if (text.starts_with("</think>")) text.erase(0, 8);
  for (const std::string_view end : {"<|im_end|>", "[e~[", "<turn|>", "<|tool_response>",
                                     "<\xEF\xBD\x9C"
                                     "end\xE2\x96\x81of\xE2\x96\x81"}) {
    text.erase(std::min(text.find(end), text.size()));
  }
  return text;
}

Json call(const std::string& name, const Json& arguments) {
  return Json{{"id", "call00001"},
              {"type", "function"},
              {"function", Json{{"name", name}, {"arguments", dump_json(arguments)}}}};
}

void expect_round_trip(const ChatTemplate& chat, const Json& calls, const std::string& content) {
  const ReplyProfile profile = detect_reply_profile(chat);
  const Json assistant = Json{{"role", "assistant"}, {"content", content}, {"tool_calls", calls}};
  const std::string text = rendered_reply(chat, profile, assistant);
  ReplyOptions options;
  options.tools = tools();
  const Reply reply = parse_reply(profile.format, options, text);
  EXPECT_EQ(reply.content, content) << text;
  ASSERT_EQ(reply.calls.size(), calls.size()) << text;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i]["function"]["name"], reply.calls[i].name) << text;
    EXPECT_TRUE(reply.calls[i].complete) << text;
    // Templates may sort the keys.
    EXPECT_EQ(nlohmann::json::parse(reply.calls[i].arguments),
              nlohmann::json::parse(calls[i]["function"]["arguments"].get<std::string>()))
        << text;
  }
}

void expect_round_trips(const ChatTemplate& chat) {
  const Json full = parse_json(
      R"({"query": "a \"b\"\n</parameter>\n\tc \\ <tool_call>{}</tool_call>", "limit": 3,
      "exact": true, "filters": {"x": [1, null], "y": "z"}, "after": null, "sites": ["a", "b"]})",
      "test");
  expect_round_trip(chat, Json::array({call("search", Json{{"query", "caf\xC3\xA9"}})}), "");
  expect_round_trip(chat, Json::array({call("search", full)}), "");
  expect_round_trip(chat, Json::array({call("now", Json::object())}), "");
  expect_round_trip(chat, Json::array({call("search", full), call("now", Json::object())}), "");
  expect_round_trip(chat, Json::array({call("search", full)}), "I will look it up.");
}

struct Expected {
  const char* file;
  ReplyFormat format;
  bool opens_thought, can_switch_off, late_system;
};

void expect_recognised_and_read_back(const ChatTemplate& chat, const Expected& want) {
  const ReplyProfile profile = detect_reply_profile(chat);
  EXPECT_EQ(to_string(profile.format), to_string(want.format));
  EXPECT_TRUE(profile.thinks);
  EXPECT_FALSE(profile.null_content);
  EXPECT_EQ(profile.opens_thought, want.opens_thought);
  EXPECT_EQ(profile.can_switch_off, want.can_switch_off);
  EXPECT_EQ(profile.late_system, want.late_system);
  expect_round_trips(chat);
}

std::string name_of(const testing::TestParamInfo<Expected>& test) {
  std::string name = test.param.file;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

class StyleTemplate : public testing::TestWithParam<Expected> {};

TEST_P(StyleTemplate, IsRecognisedAndReadBack) {
  expect_recognised_and_read_back(load(test::source_path(GetParam().file)), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    ReplyFormat, StyleTemplate,
    testing::Values(
        Expected{"tests/data/templates/chatml-xml.jinja", ReplyFormat::QwenXml, true, true, false},
        Expected{"tests/data/templates/chatml-json.jinja", ReplyFormat::Hermes, false, true, true},
        Expected{"tests/data/templates/bars.jinja", ReplyFormat::DeepSeek, false, true, true},
        Expected{"tests/data/templates/bars-xml.jinja", ReplyFormat::DeepSeekXml, true, true, true},
        Expected{"tests/data/templates/sections.jinja", ReplyFormat::Kimi, false, true, true},
        Expected{"tests/data/templates/observations.jinja", ReplyFormat::Glm, false, true, true},
        Expected{"tests/data/templates/arg-keys.jinja", ReplyFormat::GlmCompact, true, true, true},
        Expected{"tests/data/templates/bars-blocks.jinja", ReplyFormat::DeepSeekV4, false, true,
                 true},
        Expected{"tests/data/templates/invokes.jinja", ReplyFormat::MiniMax, true, true, false},
        Expected{"tests/data/templates/turns.jinja", ReplyFormat::Gemma, false, true, true},
        Expected{"models/demo/chat_template.jinja", ReplyFormat::QwenXml, true, true, false}),
    name_of);

class ReleasedTemplate : public testing::TestWithParam<Expected> {};

TEST_P(ReleasedTemplate, IsRecognisedAndReadBack) {
  const std::string relative = std::string("chat-templates/") + GetParam().file;
  MOEFLUX_NEED_SHARED(relative);
  expect_recognised_and_read_back(load(test::shared_path(relative)), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    ReplyFormat, ReleasedTemplate,
    testing::Values(Expected{"Qwen3.5-4B.jinja", ReplyFormat::QwenXml, true, true, false},
                    Expected{"Qwen-Qwen3-0.6B.jinja", ReplyFormat::Hermes, false, true, true},
                    Expected{"deepseek-ai-DeepSeek-V3.1.jinja", ReplyFormat::DeepSeek, false, true,
                             true}),
    name_of);

// Styles whose calls no format of ours reads yet: nothing is taken for a call that is none.
TEST(ReplyFormat, StylesWithoutAReader) {
  for (const std::string name : {"headers", "inst"}) {
    const ChatTemplate chat = load(test::source_path("tests/data/templates/" + name + ".jinja"));
    EXPECT_EQ(to_string(detect_reply_profile(chat).format), "plain") << name;
  }
}

TEST(ReplyFormat, Channels) {
  const ChatTemplate chat = load(test::source_path("tests/data/templates/channels.jinja"));
  const ReplyProfile profile = detect_reply_profile(chat);
  EXPECT_EQ(to_string(profile.format), "harmony");
  EXPECT_TRUE(profile.thinks);
  EXPECT_FALSE(profile.opens_thought);
  EXPECT_TRUE(profile.one_call);
  EXPECT_EQ(profile.thought_field, "thinking");
  EXPECT_FALSE(profile.thought_and_text);
  EXPECT_FALSE(profile.late_system);
  // A call, then an answer: what the template writes is read back.
  const Json call_message = {{"role", "assistant"},
                             {"content", nullptr},
                             {"reasoning_content", "Hm."},
                             {"tool_calls", Json::array({call("search", Json{{"query", "x"}})})}};
  ChatRequest request;
  request.messages = normalize_messages(
      Json::array({Json{{"role", "user"}, {"content", "the_question"}}, call_message}), profile);
  request.tools = tools();
  std::string text = chat.render(request).text;
  text.erase(0, text.rfind("the_question") + 12);
  const Reply reply = parse_reply(profile.format, {.tools = tools()}, text);
  EXPECT_EQ(reply.reasoning, "Hm.");
  EXPECT_EQ(reply.content, "");
  ASSERT_EQ(reply.calls.size(), 1u) << text;
  EXPECT_EQ(reply.calls[0].name, "search");
  EXPECT_EQ(parse_json(reply.calls[0].arguments, "call"), (Json{{"query", "x"}}));
  // Without tools nothing else tells than how prompts end.
  const ChatTemplate plain("{% for m in messages %}{{ m.content }}{% endfor %}<|start|>assistant",
                           "plain", {});
  EXPECT_EQ(to_string(detect_reply_profile(plain).format), "harmony");
}

struct Released {
  const char* name;
  ReplyFormat format;
};

// Released templates of a folder, each with the format its model writes.
TEST(ReplyFormat, OfAFolder) {
  const std::string folder = test::released_folder();
  if (folder.empty()) GTEST_SKIP() << "SKIP: MOEFLUX_RELEASED names no folder";
  int n = 0;
  for (const auto& [name, format] :
       {Released{"openai-gpt-oss-120b", ReplyFormat::Harmony},
        Released{"GLM-4.6", ReplyFormat::Glm}, Released{"GLM-4.7-Flash", ReplyFormat::GlmCompact},
        Released{"MiniMax-M2", ReplyFormat::MiniMax},
        Released{"moonshotai-Kimi-K2", ReplyFormat::Kimi},
        Released{"Kimi-K2-Instruct", ReplyFormat::Kimi},
        Released{"Kimi-K2-Thinking", ReplyFormat::Kimi},
        Released{"Qwen3-Coder", ReplyFormat::QwenXml}, Released{"npm-qwen3", ReplyFormat::Hermes},
        Released{"deepseek-ai-DeepSeek-V3.2", ReplyFormat::DeepSeekXml},
        Released{"deepseek-ai-DeepSeek-V4", ReplyFormat::DeepSeekV4},
        Released{"google-gemma-4-31B-it", ReplyFormat::Gemma},
        Released{"mixtral-8x7b", ReplyFormat::Plain}, Released{"olmoe", ReplyFormat::Plain}}) {
    const std::string path = folder + "/templates/" + name + ".jinja";
    if (!std::filesystem::exists(path)) continue;
    const ReplyProfile profile = detect_reply_profile(load(path));
    EXPECT_EQ(to_string(profile.format), to_string(format)) << name;
    const bool is_harmony = format == ReplyFormat::Harmony;
    EXPECT_EQ(profile.one_call, is_harmony) << name;
    EXPECT_EQ(profile.needs_descriptions, is_harmony) << name;
    EXPECT_EQ(profile.thought_field, is_harmony ? "thinking" : profile.thought_field) << name;
    EXPECT_EQ(profile.thought_and_text, !is_harmony) << name;
    EXPECT_EQ(profile.named_ids, format == ReplyFormat::Kimi) << name;
    if (format != ReplyFormat::Plain && !is_harmony) {
      SCOPED_TRACE(name);
      expect_round_trips(load(path));
    }
    ++n;
  }
  EXPECT_GT(n, 0);
}

TEST(ReplyFormat, WhatIsKnownOfAReplyByItsPrompt) {
  const auto of = [](const char* text) { return format_of_prompt(MarkedText::all_markup(text)); };
  EXPECT_EQ(of("Hi<|end|><|start|>assistant"), ReplyFormat::Harmony);
  EXPECT_EQ(of("Hi<|channel|>analysis<|message|>"), ReplyFormat::Harmony);
  EXPECT_EQ(of("Hi<think>"), ReplyFormat::Plain);
  EXPECT_EQ(of("Hi<turn|>\n<|turn>model\n"), ReplyFormat::Gemma);
  EXPECT_EQ(of("<|turn>model\n<|channel>thought\n<channel|>"), ReplyFormat::Gemma);
  EXPECT_EQ(format_of_prompt(MarkedText::all_data("<|start|>assistant")), ReplyFormat::Plain);
  EXPECT_EQ(format_without_calls(ReplyFormat::Harmony), ReplyFormat::Harmony);
  EXPECT_EQ(format_without_calls(ReplyFormat::Glm), ReplyFormat::Plain);
  EXPECT_EQ(format_without_calls(ReplyFormat::Gemma), ReplyFormat::Gemma);
}

TEST(ReplyFormat, EffortsThatAModelKnows) {
  const auto adapted = [](ReplyFormat format, Json variables) {
    adapt_thinking_variables(format, variables);
    return variables;
  };
  const auto effort = [](const char* word) { return Json{{"reasoning_effort", word}}; };
  for (const auto& [asked, known] : {std::pair{"minimal", "low"}, std::pair{"low", "low"},
                                     std::pair{"medium", "medium"}, std::pair{"max", "high"}}) {
    EXPECT_EQ(adapted(ReplyFormat::Harmony, effort(asked)), effort(known));
    EXPECT_EQ(adapted(ReplyFormat::DeepSeekV4, effort(asked)), effort(asked));
  }
  EXPECT_EQ(adapted(ReplyFormat::Harmony, Json{{"enable_thinking", false}})["reasoning_effort"],
            "low");
  EXPECT_EQ(adapted(ReplyFormat::Harmony, Json::object()), Json::object());
}

TEST(ReplyFormat, BundledModelsAreReadBack) {
  for (const char* model : {"demo", "demo-mla"}) {
    const ChatTemplate chat =
        load(test::source_path(std::string("models/") + model + "/chat_template.jinja"));
    EXPECT_EQ(to_string(detect_reply_profile(chat).format), "qwen_xml");
    expect_round_trips(chat);
  }
}

TEST(ReplyFormat, TemplatesNeverSeen) {
  // DeepSeek V3's shape: a fence, arguments as text, and calls only beside null.
  const std::string bar = "\xEF\xBD\x9C", gap = "\xE2\x96\x81";
  const auto marker = [&](const std::string& a, const std::string& b, const std::string& c) {
    return "<" + bar + a + gap + b + (c.empty() ? "" : gap + c) + bar + ">";
  };
  const std::string v3 =
      "{%- for m in messages -%}{%- if m.role == 'assistant' and m.content is none -%}{{'" +
      marker("tool", "calls", "begin") + "'}}{%- for t in m.tool_calls -%}{{'" +
      marker("tool", "call", "begin") + "' + t.type + '" + marker("tool", "sep", "") +
      "' + t.function.name + '\\n```json\\n' + t.function.arguments + '\\n```" +
      marker("tool", "call", "end") + "'}}{%- endfor -%}{{'" + marker("tool", "calls", "end") +
      "'}}{%- else -%}{{ m.role + ': ' + m.content + '\\n' }}{%- endif -%}{%- endfor -%}";
  const ReplyProfile profile = detect_reply_profile(ChatTemplate(v3, "v3", {}));
  EXPECT_FALSE(profile.needs_descriptions);
  const ChatTemplate describing(
      "{% for t in tools or [] %}{{ '// ' + t.function.description }}{% endfor %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}",
      "describing", {});
  EXPECT_TRUE(detect_reply_profile(describing).needs_descriptions);
  EXPECT_EQ(to_string(profile.format), "deepseek_fenced");
  EXPECT_TRUE(profile.null_content);
  EXPECT_FALSE(profile.thinks);
  EXPECT_FALSE(profile.can_switch_off);

  // Kimi's shape where the id is what stands for the name.
  const std::string by_id =
      "{%- for m in messages -%}{{ m.content }}{%- for t in m.tool_calls or [] -%}"
      "<|tool_calls_section_begin|><|tool_call_begin|>{{ t.id }}<|tool_call_argument_begin|>"
      "{{ t.function.arguments | tojson }}<|tool_call_end|><|tool_calls_section_end|>"
      "{%- endfor -%}{%- endfor -%}";
  const ReplyProfile named = detect_reply_profile(ChatTemplate(by_id, "by_id", {}));
  EXPECT_EQ(to_string(named.format), "kimi");
  EXPECT_TRUE(named.named_ids);
  EXPECT_FALSE(profile.named_ids);

  const auto format_of = [](std::string_view source) {
    return to_string(detect_reply_profile(ChatTemplate(source, "test", {})).format);
  };
  EXPECT_EQ(format_of("{% for m in messages %}{{ m.content }}{% endfor %}"), "plain");
  EXPECT_EQ(format_of("{% if tools %}Write <tool_call>{json}</tool_call>.{% endif %}"
                      "{% for m in messages %}{{ m.content }}{% endfor %}"),
            "hermes");
  EXPECT_EQ(format_of("{{ raise_exception('no') }}"), "plain");
}

TEST(ReplyFormat, KnowsPromptsThatOpenAThought) {
  EXPECT_TRUE(prompt_opens_thought(MarkedText::all_markup("x<think>\n")));
  EXPECT_FALSE(prompt_opens_thought(MarkedText::all_markup("x<think>\n\n</think>\n\n")));
  EXPECT_FALSE(prompt_opens_thought(MarkedText::all_markup("")));
  EXPECT_TRUE(prompt_opens_thought(MarkedText::all_markup("x<|channel|>analysis<|message|>")));
  EXPECT_FALSE(prompt_opens_thought(MarkedText::all_data("a user writes <think>")));
}

TEST(ReplyFormat, SpecialTokensThatAreMarkers) {
  Json json = test::tiny_json();
  json["added_tokens"] =
      Json::array({test::tiny_added("<tool_call>", 300),
                   test::tiny_added("</tool_call>", 301, {{"special", false}}),
                   test::tiny_added("<|im_end|>", 302), test::tiny_added("</think>", 303)});
  const Tokenizer tokenizer = test::load_json(json);
  EXPECT_EQ(special_marker_tokens(ReplyFormat::Hermes, tokenizer),
            (std::vector<TokenId>{300, 303}));
  EXPECT_EQ(special_marker_tokens(ReplyFormat::Plain, tokenizer), std::vector<TokenId>{303});
}

// What the bundled model was recorded to write.
TEST(ReplyFormat, RecordedAnswersOfTheDemoModel) {
  std::istringstream lines(read_text_file(test::data_path("demo/answers.jsonl"), 64 << 20));
  int n_calls = 0, n_thoughts = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json record = parse_json(line, "answers.jsonl");
    ReplyOptions options;
    options.tools = record["tools"];
    options.opens_thought = record["enable_thinking"].get<bool>();
    const std::string text = record["greedy_text"];
    const Reply reply = parse_reply(ReplyFormat::QwenXml, options, text);
    EXPECT_EQ(reply.content.find("think>"), std::string::npos) << text;
    if (text.find("</think>") != std::string::npos) {
      ++n_thoughts;
      EXPECT_EQ(text.substr(0, reply.reasoning.size() + 9), reply.reasoning + "\n</think>");
    }
    const std::size_t at = text.find("<tool_call>");
    if (record["tools"].is_null() || at == std::string::npos) {
      EXPECT_TRUE(reply.calls.empty()) << text;
      continue;
    }
    ++n_calls;
    ASSERT_EQ(reply.calls.size(), 1u) << text;
    EXPECT_TRUE(reply.calls[0].complete);
    EXPECT_EQ(reply.content, "") << text;
    // The call, taken apart without the parser.
    const std::size_t name = text.find("<function=") + 10;
    EXPECT_EQ(reply.calls[0].name, text.substr(name, text.find('>', name) - name));
    const Json arguments = parse_json(reply.calls[0].arguments, "call");
    for (const auto& [key, value] : arguments.items()) {
      const std::string written = value.is_string() ? value.get<std::string>() : value.dump();
      EXPECT_NE(text.find("<parameter=" + key + ">\n" + written + "\n</parameter>"),
                std::string::npos)
          << text;
      EXPECT_EQ(value.is_number(), key == "minutes" || key == "count") << text;
    }
  }
  EXPECT_GT(n_calls, 10);
  EXPECT_GT(n_thoughts, 3);
}

}  // namespace
}  // namespace moeflux
