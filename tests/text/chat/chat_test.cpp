#include "text/chat/chat.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "support/paths.h"
#include "text/replies/reply_history.h"

namespace moeflux {
namespace {

ChatTemplate make(std::string_view source) {
  return ChatTemplate(source, "test", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
}

ChatRequest ask(std::string_view messages) {
  ChatRequest request;
  request.messages = parse_json(messages, "test");
  return request;
}

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

// ---- messages as they are given; the values are those of Hugging Face transformers

std::string rendered(std::string_view source, std::string_view messages) {
  return make(source).render(ask(messages)).text;
}

TEST(ChatTemplate, ContentIsGivenAsItIs) {
  const char* const text = R"([{"role": "user", "content": "a"}])";
  const char* const parts = R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                                                             {"type": "text", "text": "b"}]}])";
  const char* const printing = "{{ messages[0].content }}";
  EXPECT_EQ(rendered(printing, parts),
            "[{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}]");
  EXPECT_EQ(rendered(printing, R"([{"role": "user", "content": []}])"), "[]");
  EXPECT_EQ(rendered(printing, R"([{"role": "user", "content": ["a", 1]}])"), "['a', 1]");
  EXPECT_EQ(rendered(printing, R"([{"role": "user", "content": {"a": null}}])"), "{'a': None}");
  EXPECT_EQ(rendered(printing, R"([{"role": "user", "content": null}])"), "None");
  EXPECT_EQ(rendered(printing, R"([{"role": "user"}])"), "");

  const char* const each = "{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}";
  EXPECT_EQ(rendered(each, parts), "<a><b>");
  EXPECT_EQ(rendered(each, text), "<>");
  EXPECT_NE(error_of(make("{{ '<u>' + messages[0].content }}"), ask(parts))
                .find("can only concatenate str"),
            std::string::npos);
}

TEST(ChatTemplate, ArgumentsAreGivenAsTheyAre) {
  const auto call = [](std::string_view arguments) {
    return fmt::format(R"([{{"role": "assistant", "tool_calls": [
        {{"function": {{"name": "w", "arguments": {}}}}}]}}])",
                       arguments);
  };
  const std::string each = "{% set a = messages[0].tool_calls[0].function.arguments %}";
  const std::string object = call(R"({"city": "Oslo"})");
  const std::string text = call(R"("{\"city\":\"Oslo\"}")");
  EXPECT_EQ(rendered(each + "{{ a }}", object), "{'city': 'Oslo'}");
  EXPECT_EQ(rendered(each + "{{ a }}", text), R"({"city":"Oslo"})");
  EXPECT_EQ(rendered(each + "{{ a | tojson }}", object), R"({"city": "Oslo"})");
  EXPECT_EQ(rendered(each + "{{ a | tojson }}", text), R"("{\"city\":\"Oslo\"}")");
  EXPECT_EQ(rendered(each + "{{ a is string }}", call(R"("")")), "True");
  EXPECT_EQ(rendered(each + "{{ a is mapping }}", call("{}")), "True");
  EXPECT_NE(
      error_of(make(each + "{% for k, v in a | items %}{% endfor %}"), ask(text)).find("mapping"),
      std::string::npos);
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
                        {"role": "x"}, {"role": "y", "content": 5}])"),
            "valid");
  EXPECT_EQ(problem("{}"), "\"messages\" must be an array");
  EXPECT_EQ(problem("[1]"), "messages[0] must be an object");
  EXPECT_EQ(problem(R"([{"role": "user"}, {"content": "x"}])"),
            "messages[1] must have a \"role\" that is a string");
  EXPECT_EQ(problem(R"([{"role": 5}])"), "messages[0] must have a \"role\" that is a string");
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

// ---- message forms

ChatTemplate template_of(std::string_view source) {
  return ChatTemplate(source, "test", {});
}

// What a server renders of a client's messages.
std::string served(const ChatTemplate& chat, std::string_view messages) {
  ChatRequest request;
  ReplyProfile profile;
  profile.forms = chat.forms();
  request.messages = normalize_messages(parse_json(messages, "test"), profile);
  return chat.render(request).text;
}

// ---- arguments

const char* const kCall = R"([{"role": "user", "content": "W?"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "call00001", "type": "function",
      "function": {"name": "w", "arguments": "{\"city\":\"Oslo\", \"days\": 2}"}}]}])";
const char* const kObjectCall = R"([{"role": "assistant",
    "tool_calls": [{"function": {"name": "w", "arguments": {"a": 1}}}]}])";

ChatTemplate using_arguments(const std::string& use) {
  return template_of(
      "{% for m in messages %}{% for c in m.tool_calls or [] %}"
      "{% set a = c.function.arguments %}" +
      use + "{% endfor %}{% endfor %}");
}

TEST(MessageForms, ArgumentsBecomeObjectsForTemplatesThatReadThem) {
  const ChatTemplate items =
      using_arguments("{% for k, v in a | items %}{{ k }}={{ v }};{% endfor %}");
  EXPECT_EQ(items.forms().arguments, ArgumentForm::Object);
  EXPECT_EQ(served(items, kCall), "city=Oslo;days=2;");
  EXPECT_EQ(served(items, kObjectCall), "a=1;");

  for (const char* use : {"{{ a | tojson }}", "{{ a if a is string else a | tojson }}"}) {
    const ChatTemplate json = using_arguments(use);
    EXPECT_EQ(json.forms().arguments, ArgumentForm::Object) << use;
    EXPECT_EQ(served(json, kCall), R"({"city": "Oslo", "days": 2})") << use;
  }
}

TEST(MessageForms, ArgumentsStayStringsForTemplatesThatConcatenate) {
  for (const char* use : {"{{ '>' + a }}", "{{ '>' ~ a }}", "{{ '>' }}{{ a }}"}) {
    const ChatTemplate chat = using_arguments(use);
    EXPECT_EQ(chat.forms().arguments, ArgumentForm::String) << use;
    EXPECT_EQ(served(chat, kCall), R"(>{"city":"Oslo", "days": 2})") << use;
    EXPECT_EQ(served(chat, kObjectCall), R"(>{"a": 1})") << use;
  }
}

TEST(MessageForms, ArgumentsThatAreNoJson) {
  const char* const calls = R"([{"role": "assistant", "tool_calls": [
      {"function": {"name": "w", "arguments": "{\"a\": "}},
      {"function": {"name": "w", "arguments": ""}},
      {"function": {"name": "w", "arguments": "[1]"}}]}])";
  EXPECT_EQ(served(using_arguments("{{ a | tojson }};"), calls),
            R"({"arguments": "{\"a\": "};{};{"arguments": "[1]"};)");
  EXPECT_EQ(served(using_arguments("{{ a + ';' }}"), calls), R"({"a": ;{};[1];)");
}

TEST(MessageForms, TemplateStylesReadArgumentsAsObjects) {
  for (const std::string name : {"chatml-json", "chatml-xml", "bars", "bars-xml", "sections",
                                 "headers", "inst", "observations", "channels", "invokes"}) {
    const std::string path = test::source_path("tests/data/templates/" + name + ".jinja");
    EXPECT_EQ(template_of(read_text_file(path, 1 << 20)).forms().arguments, ArgumentForm::Object)
        << name;
  }
}

TEST(MessageForms, ReleasedTemplatesReadArgumentsAsObjects) {
  MOEFLUX_NEED_SHARED("chat-templates/cases.jsonl");
  for (const char* name :
       {"Qwen3.5-4B.jinja", "Qwen-Qwen3-0.6B.jinja", "deepseek-ai-DeepSeek-V3.1.jinja"}) {
    const std::string path = test::shared_path(std::string("chat-templates/") + name);
    EXPECT_EQ(template_of(read_text_file(path, 1 << 20)).forms().arguments, ArgumentForm::Object)
        << name;
  }
}

// ---- content

const char* const kText = R"([{"role": "user", "content": "a"}])";
const char* const kPart = R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}])";
const char* const kParts = R"([{"role": "user", "content": [{"type": "text", "text": "a"},
    {"type": "text", "text": ""}, {"type": "text", "text": "b"}]}])";

TEST(MessageForms, PartsAreJoinedForTemplatesThatReadStrings) {
  for (const char* source : {"{{ '<u>' + messages[0].content }}", "<u>{{ messages[0].content }}",
                             "<u>{{ messages[0].content.strip() }}"}) {
    const ChatTemplate chat = template_of(source);
    EXPECT_EQ(chat.forms().content.at("user"), ContentForm::String) << source;
    EXPECT_EQ(served(chat, kParts), "<u>a\n\nb") << source;
    EXPECT_EQ(served(chat, kPart), "<u>a") << source;
    EXPECT_EQ(served(chat, kText), "<u>a") << source;
  }
}

TEST(MessageForms, TextBecomesAPartForTemplatesThatReadParts) {
  const ChatTemplate chat =
      template_of("{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}");
  EXPECT_EQ(chat.forms().content.at("user"), ContentForm::Parts);
  EXPECT_EQ(served(chat, kText), "<a>");
  EXPECT_EQ(served(chat, kParts), "<a><><b>");
}

TEST(MessageForms, TemplatesThatReadBothGetWhatTheClientGave) {
  const ChatTemplate chat = template_of(
      "{% set c = messages[0].content %}{% if c is string %}{{ c }}{% else %}"
      "{% for p in c %}<{{ p.text }}>{% endfor %}{% endif %}");
  EXPECT_FALSE(chat.forms().content.contains("user"));
  EXPECT_EQ(served(chat, kText), "a");
  EXPECT_EQ(served(chat, kPart), "<a>");
  EXPECT_EQ(served(chat, kParts), "<a><><b>");
}

// Many templates read the parts of users only.
TEST(MessageForms, EachRoleHasItsOwn) {
  const ChatTemplate chat = template_of(
      "{% for m in messages %}{% if m.role == 'user' and m.content is not string %}"
      "{% for p in m.content %}<{{ p.text }}>{% endfor %}"
      "{% else %}{{ '[' + (m.content or '') + ']' }}{% endif %}{% endfor %}");
  EXPECT_FALSE(chat.forms().content.contains("user"));
  for (const char* role : {"system", "assistant", "tool"})
    EXPECT_EQ(chat.forms().content.at(role), ContentForm::String) << role;
  const auto parts = [](std::string_view role) {
    return fmt::format(R"({{"role": "{}", "content": [{{"type": "text", "text": "a"}},
                                                      {{"type": "text", "text": "b"}}]}})",
                       role);
  };
  EXPECT_EQ(served(chat, fmt::format("[{}, {}, {}, {}]", parts("system"), parts("user"),
                                     parts("assistant"), parts("tool"))),
            "[a\nb]<a><b>[a\nb][a\nb]");
}

}  // namespace
}  // namespace moeflux
