#include <gtest/gtest.h>

#include "base/file.h"
#include "support/paths.h"
#include "text/chat/chat.h"
#include "text/replies/reply_history.h"

namespace moeflux {
namespace {

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

TEST(MessageForms, ReleasedTemplatesReadArgumentsAsObjects) {
  MOEFLUX_NEED_SHARED("chat-templates/cases.jsonl");
  for (const char* name : {"Qwen3.5-4B.jinja", "Qwen-Qwen3-0.6B.jinja",
                           "deepseek-ai-DeepSeek-V3.1.jinja", "demo.jinja"}) {
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
