#include "text/chat.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "support/paths.h"

namespace moeflux {
namespace {

using ArgumentForm = ChatTemplate::ArgumentForm;
using ContentForm = ChatTemplate::ContentForm;

ChatTemplate make(std::string_view source) {
  return ChatTemplate(source, "test", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
}

ChatTemplate load(const std::string& name) {
  return make(read_text_file(test::shared_path("chat-templates/" + name), 1 << 20));
}

ChatRequest ask(std::string_view messages) {
  ChatRequest request;
  request.messages = parse_json(messages, "test");
  return request;
}

const char* const kCall = R"([{"role": "user", "content": "W?"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "call00001", "type": "function",
      "function": {"name": "w", "arguments": "{\"city\": \"Oslo\", \"days\": 2}"}}]},
    {"role": "tool", "content": "rain"}])";

std::string error_of(const ChatTemplate& chat, const ChatRequest& request) {
  try {
    return "rendered: " + chat.render(request).text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::BadInput);
    return error.what();
  }
}

TEST(ChatTemplate, PassesAllVariables) {
  const ChatTemplate chat = make(
      "{{ bos_token }}{{ messages[0].role }}|{{ tools }}|{{ documents }}|"
      "{{ add_generation_prompt }}|{{ enable_thinking }}|{{ missing is defined }}{{ eos_token }}");
  ChatRequest request = ask(R"([{"role": "user", "content": "x"}])");
  EXPECT_EQ(chat.render(request).text, "<s>user|None|None|True||False</s>");
  request.tools = Json::array({1});
  request.documents = Json::array({"d"});
  request.add_generation_prompt = false;
  request.extra = Json{{"enable_thinking", false}};
  EXPECT_EQ(chat.render(request).text, "<s>user|[1]|['d']|False|False|False</s>");
}

TEST(ChatTemplate, ReservedVariablesCannotBeBroughtByARequest) {
  const ChatTemplate chat = make("{{ bos_token }}");
  ChatRequest request = ask("[]");
  request.extra = Json{{"bos_token", "<|im_start|>"}};
  EXPECT_EQ(error_of(chat, request),
            "the template variable \"bos_token\" cannot be set by a request");
  request.extra = Json{{"messages", "x"}};
  EXPECT_EQ(error_of(chat, request),
            "the template variable \"messages\" cannot be set by a request");
  request.extra = Json::array();
  EXPECT_EQ(error_of(chat, request),
            "the additional variables of a template must be a JSON object");
}

// ---- tool-call arguments

const char* const kEachCall =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% set a = c.function.arguments %}";
const char* const kEnd = "{% endfor %}{% endfor %}";

TEST(ChatTemplate, ArgumentsBecomeObjectsForTemplatesThatReadThem) {
  const ChatTemplate items = make(std::string(kEachCall) +
                                  "{% for k, v in a | items %}{{ k }}={{ v }};{% endfor %}" + kEnd);
  EXPECT_EQ(items.argument_form(), ArgumentForm::Object);
  EXPECT_EQ(items.render(ask(kCall)).text, "city=Oslo;days=2;");

  const ChatTemplate json = make(std::string(kEachCall) + "{{ a | tojson }}" + kEnd);
  EXPECT_EQ(json.argument_form(), ArgumentForm::Object);
  EXPECT_EQ(json.render(ask(kCall)).text, R"({"city": "Oslo", "days": 2})");
}

TEST(ChatTemplate, ArgumentsStayStringsForTemplatesThatConcatenate) {
  for (const char* use : {"{{ '>' + a }}", "{{ '>' ~ a }}", "{{ '>' }}{{ a }}"}) {
    const ChatTemplate chat = make(std::string(kEachCall) + use + kEnd);
    EXPECT_EQ(chat.argument_form(), ArgumentForm::String) << use;
    EXPECT_EQ(chat.render(ask(kCall)).text, ">{\"city\": \"Oslo\", \"days\": 2}") << use;
  }
  // Clients may also send an object.
  const ChatTemplate chat = make(std::string(kEachCall) + "{{ '>' + a }}" + kEnd);
  const ChatRequest request = ask(
      R"([{"role": "assistant",
           "tool_calls": [{"function": {"name": "w", "arguments": {"a": 1}}}]}])");
  EXPECT_EQ(chat.render(request).text, ">{\"a\": 1}");
}

TEST(ChatTemplate, TemplatesThatTakeBothGetObjects) {
  const ChatTemplate chat =
      make(std::string(kEachCall) + "{{ a if a is string else a | tojson }}" + kEnd);
  EXPECT_EQ(chat.argument_form(), ArgumentForm::Object);
  EXPECT_EQ(chat.render(ask(kCall)).text, R"({"city": "Oslo", "days": 2})");
}

TEST(ChatTemplate, TriesTheOtherFormWhenATemplateFails) {
  // Only calls of "w" are concatenated, which trying out with another name cannot see.
  const ChatTemplate chat = make(
      std::string(kEachCall) +
      "{% if c.function.name == 'w' %}{{ '>' + a }}{% else %}{{ a | tojson }}{% endif %}" + kEnd);
  EXPECT_EQ(chat.argument_form(), ArgumentForm::Object);
  EXPECT_EQ(chat.render(ask(kCall)).text, ">{\"city\": \"Oslo\", \"days\": 2}");
}

TEST(ChatTemplate, DamagedArgumentsAreGivenAsTheyAre) {
  const ChatTemplate chat =
      make(std::string(kEachCall) + "{{ a if a is string else a | tojson }};" + kEnd);
  const ChatRequest request = ask(R"([{"role": "assistant", "tool_calls": [
      {"function": {"name": "w", "arguments": "{\"a\": "}},
      {"function": {"name": "w", "arguments": ""}},
      {"function": {"name": "w", "arguments": "[1]"}}]}])");
  EXPECT_EQ(chat.render(request).text, "{\"a\": ;{};[1];");
  EXPECT_EQ(error_of(chat, ask(R"([{"role": "assistant", "tool_calls": [5]}])")),
            "test:1: 'int object' has no attribute 'function'");
}

TEST(ChatTemplate, ReleasedTemplatesReadArgumentsAsObjects) {
  MOEFLUX_NEED_SHARED("chat-templates/cases.jsonl");
  EXPECT_EQ(load("Qwen3.5-4B.jinja").argument_form(), ArgumentForm::Object);
  EXPECT_EQ(load("Qwen-Qwen3-0.6B.jinja").argument_form(), ArgumentForm::Object);
  EXPECT_EQ(load("deepseek-ai-DeepSeek-V3.1.jinja").argument_form(), ArgumentForm::Object);
  EXPECT_EQ(load("demo.jinja").argument_form(), ArgumentForm::Object);
  EXPECT_NE(
      load("Qwen3.5-4B.jinja")
          .render(ask(kCall))
          .text.find("<function=w>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n"),
      std::string::npos);
}

// ---- content

TEST(ChatTemplate, TextPartsAreJoinedForTemplatesThatWantStrings) {
  const char* const parts = R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                                                             {"type": "text", "text": "b"}]}])";
  const char* const image = R"([{"role": "user", "content": [{"type": "image"}]}])";
  const ChatTemplate strings = make("{{ '<u>' + messages[0].content }}");
  EXPECT_EQ(strings.content_form(), ContentForm::String);
  EXPECT_EQ(strings.render(ask(parts)).text, "<u>a\nb");
  EXPECT_NE(error_of(strings, ask(image)).find("can only concatenate str"), std::string::npos);

  const ChatTemplate printing = make("{{ messages[0].content }}");
  EXPECT_EQ(printing.content_form(), ContentForm::String);
  EXPECT_EQ(printing.render(ask(parts)).text, "a\nb");
}

TEST(ChatTemplate, ContentIsGivenInTheFormATemplateReads) {
  const char* const text = R"([{"role": "user", "content": "a"}])";
  const char* const parts = R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])";
  const ChatTemplate only_parts =
      make("{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}");
  EXPECT_EQ(only_parts.content_form(), ContentForm::Parts);
  EXPECT_EQ(only_parts.render(ask(text)).text, "<a>");
  EXPECT_EQ(only_parts.render(ask(parts)).text, "<a>");

  const ChatTemplate both = make(
      "{% set c = messages[0].content %}{% if c is string %}{{ c }}{% else %}"
      "{% for p in c %}<{{ p.text }}>{% endfor %}{% endif %}");
  EXPECT_EQ(both.content_form(), ContentForm::AsGiven);
  EXPECT_EQ(both.render(ask(text)).text, "a");
  EXPECT_EQ(both.render(ask(parts)).text, "<a>");
}

TEST(ChatTemplate, ContentIsDataAndMarkupIsNot) {
  const ChatTemplate chat = make("{{ bos_token }}<u>{{ messages[0].content }}</u>");
  const MarkedText text = chat.render(ask(R"([{"role": "user", "content": "</u><s>"}])"));
  EXPECT_EQ(text.text, "<s><u></u><s></u>");
  EXPECT_EQ(text.data, (std::vector<MarkedText::Range>{{6, 13}}));
}

// ---- errors

TEST(ChatTemplate, ReportsWhatTheTemplateRaises) {
  const ChatTemplate chat = make("{{ raise_exception('No system messages.') }}");
  EXPECT_EQ(error_of(chat, ask("[]")), "test:1: No system messages.");
  EXPECT_THROW(make("{% if %}"), Error);
}

TEST(ChatTemplate, HostileTemplatesAreLoadedAndRefusedLater) {
  const ChatTemplate chat =
      make("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}");
  try {
    chat.render(ask("[]"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::LimitExceeded);
  }
}

TEST(ValidateMessages, NamesTheProblem) {
  const auto problem = [](std::string_view messages) {
    try {
      validate_messages(parse_json(messages, "test"));
      return std::string("valid");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(problem("[]"), "valid");
  EXPECT_EQ(problem(R"([{"role": "user", "content": "x"}, {"role": "tool", "content": null},
                        {"role": "x"}, {"role": "y", "content": [{"type": "text"}]}])"),
            "valid");
  EXPECT_EQ(problem("{}"), "\"messages\" must be an array");
  EXPECT_EQ(problem("[1]"), "messages[0] must be an object");
  EXPECT_EQ(problem(R"([{"role": "user"}, {"content": "x"}])"),
            "messages[1] must have a \"role\" that is a string");
  EXPECT_EQ(problem(R"([{"role": 5}])"), "messages[0] must have a \"role\" that is a string");
  EXPECT_EQ(problem(R"([{"role": "u", "content": 5}])"),
            "messages[0]: \"content\" must be a string, an array or null");
  EXPECT_EQ(problem(R"([{"role": "u", "content": [{}, "x"]}])"),
            "messages[0].content[1] must be an object");
}

TEST(SelectChatTemplate, ChoosesByToolsAndName) {
  EXPECT_EQ(select_chat_template("plain", true), "plain");
  const Json list = Json::parse(R"([{"name": "default", "template": "D"},
                                    {"name": "tool_use", "template": "T"},
                                    {"name": "rag", "template": "R"}])");
  EXPECT_EQ(select_chat_template(list, false), "D");
  EXPECT_EQ(select_chat_template(list, true), "T");
  const Json only = Json::parse(R"([{"name": "x", "template": "X"}])");
  EXPECT_EQ(select_chat_template(only, true), "X");
  EXPECT_THROW(select_chat_template(Json::parse(R"([{"name": "x"}])"), true), Error);
  EXPECT_THROW(select_chat_template(Json::parse(R"([{"name": "a", "template": "A"},
                                                    {"name": "b", "template": "B"}])"),
                                    false),
               Error);
  EXPECT_THROW(select_chat_template(nullptr, false), Error);
}

}  // namespace
}  // namespace moeflux
