#include "text/replies/reply_history.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace moeflux {
namespace {

using test::expect_error;

Json json(std::string_view text) {
  return parse_json(text, "test");
}

Json normalize(std::string_view messages, const ReplyProfile& profile = {}) {
  return normalize_messages(json(messages), profile);
}

TEST(ReplyHistory, MessagesOfAllForms) {
  EXPECT_EQ(normalize(R"([
    {"role": "developer", "content": "Be brief."},
    {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
    {"role": "user", "name": "Ann",
     "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "reasoning": "Hm.", "refusal": null, "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
      {"id": "c2", "function": {"name": "g", "arguments": {"y": [2]}}}]},
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "one"}]},
    {"role": "assistant", "content": "Done.", "reasoning_content": "Ok."}])"),
            json(R"([
    {"role": "system", "content": "Be brief.\n\nBe kind."},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
     "name": "Ann"},
    {"role": "assistant", "content": "", "reasoning_content": "Hm.", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
      {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {"y": [2]}}}]},
    {"role": "tool", "content": "two", "tool_call_id": "c2", "name": "g"},
    {"role": "tool", "content": [{"type": "text", "text": "one"}], "tool_call_id": "c1",
     "name": "f"},
    {"role": "assistant", "content": "Done.", "reasoning_content": "Ok."}])"));
}

TEST(ReplyHistory, CallsOfOld) {
  EXPECT_EQ(normalize(R"([{"role": "user", "content": "q"},
    {"role": "assistant", "function_call": {"name": "f", "arguments": ""}},
    {"role": "function", "name": "f", "content": "r"}])"),
            json(R"([{"role": "user", "content": "q"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"type": "function", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "content": "r", "name": "f"}])"));
}

TEST(ReplyHistory, ArgumentsThatAreNoObjectDoNotEndTheChat) {
  const auto arguments = [](std::string_view written) {
    Json call = json(R"({"id": "c", "type": "function", "function": {"name": "f"}})");
    call["function"]["arguments"] = written;
    const Json message = Json{{"role", "assistant"}, {"tool_calls", Json::array({call})}};
    return normalize_messages(Json::array({message}))[0]["tool_calls"][0]["function"]["arguments"];
  };
  EXPECT_EQ(arguments("{\"x\": "), json(R"({"arguments": "{\"x\": "})"));
  EXPECT_EQ(arguments("[1]"), json(R"({"arguments": "[1]"})"));
  EXPECT_EQ(arguments(" "), Json::object());
}

TEST(ReplyHistory, AdaptsToTheTemplate) {
  const char* messages = R"([{"role": "user", "content": "q"}, {"role": "system", "content": "s"},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}])";
  const Json plain = normalize(messages);
  EXPECT_EQ(plain[1]["role"], "system");
  EXPECT_EQ(plain[2]["content"], "");
  const Json adapted = normalize(messages, {.null_content = true, .late_system = false});
  EXPECT_EQ(adapted[1]["role"], "user");
  EXPECT_TRUE(adapted[2]["content"].is_null());
}

TEST(ReplyHistory, ThoughtsStandWhereTheTemplateReadsThem) {
  for (const char* field : {"reasoning_content", "reasoning", "thinking"}) {
    Json messages = json(R"([{"role": "assistant", "content": "a"}])");
    messages[0][field] = "t";
    EXPECT_EQ(normalize_messages(messages, {.thought_field = "thinking"}),
              json(R"([{"role": "assistant", "content": "a", "thinking": "t"}])"));
  }
  const char* beside_call = R"([{"role": "assistant", "content": "a", "reasoning": "t",
                                 "tool_calls": [{"function": {"name": "f"}}]}])";
  EXPECT_EQ(normalize(beside_call)[0]["content"], "a");
  const Json joined =
      normalize(beside_call, {.thought_field = "thinking", .thought_and_text = false});
  EXPECT_EQ(joined[0]["content"], "");
  EXPECT_EQ(joined[0]["thinking"], "t\n\na");
}

TEST(ReplyHistory, ToolsWithoutADescription) {
  const Json tools = normalize_tools(json(R"([{"name": "f"}, {"name": "g", "description": "d"}])"));
  EXPECT_EQ(tools_for_template(tools, {}), tools);
  const Json described = tools_for_template(tools, {.needs_descriptions = true});
  EXPECT_EQ(described[0]["function"]["description"], "");
  EXPECT_EQ(described[1]["function"]["description"], "d");
  EXPECT_EQ(tools_for_template(nullptr, {.needs_descriptions = true}), nullptr);
}

TEST(ReplyHistory, IdsThatNameTheirFunction) {
  const char* messages = R"([
    {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f"}},
                                         {"id": "y", "function": {"name": "g"}}]},
    {"role": "tool", "tool_call_id": "y", "content": "two"},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
    {"role": "tool", "tool_call_id": "z", "content": "three"}])";
  const Json named = normalize(messages, {.named_ids = true});
  EXPECT_EQ(named[0]["tool_calls"][0]["id"], "functions.f:0");
  EXPECT_EQ(named[0]["tool_calls"][1]["id"], "functions.g:1");
  EXPECT_EQ(named[1]["tool_call_id"], "functions.g:1");
  EXPECT_EQ(named[2]["tool_calls"][0]["id"], "functions.f:2");
  EXPECT_EQ(named[3]["tool_call_id"], "z");
}

TEST(ReplyHistory, OneCallAMessage) {
  const char* messages = R"([{"role": "user", "content": "q"},
    {"role": "assistant", "content": "Both.", "reasoning": "t", "tool_calls": [
      {"id": "c1", "function": {"name": "f"}}, {"id": "c2", "function": {"name": "g"}}]},
    {"role": "tool", "tool_call_id": "c2", "content": "two"},
    {"role": "tool", "tool_call_id": "c1", "content": "one"},
    {"role": "tool", "tool_call_id": "c9", "content": "left"},
    {"role": "assistant", "content": "Done."}])";
  EXPECT_EQ(normalize(messages)[1]["tool_calls"].size(), 2u);
  EXPECT_EQ(normalize(messages, {.one_call = true}), json(R"([{"role": "user", "content": "q"},
    {"role": "assistant", "content": "Both.", "reasoning_content": "t", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "content": "one", "tool_call_id": "c1", "name": "f"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
    {"role": "tool", "content": "two", "tool_call_id": "c2", "name": "g"},
    {"role": "tool", "content": "left", "tool_call_id": "c9"},
    {"role": "assistant", "content": "Done."}])"));
  EXPECT_EQ(normalize(R"([{"role": "assistant", "tool_calls": [
                {"function": {"name": "f"}}, {"function": {"name": "g"}}]},
              {"role": "tool", "content": "one"}, {"role": "tool", "content": "two"}])",
                      {.one_call = true})[1]["content"],
            "one")
      << "without ids, in their order";
}

TEST(ReplyHistory, ErrorsNameMessageAndField) {
  const auto refused = [](std::initializer_list<std::string_view> parts, std::string_view text) {
    expect_error(Errc::BadInput, parts, [&] { normalize(text); });
  };
  refused({"messages", "array"}, "{}");
  refused({"messages", "empty"}, "[]");
  refused({"messages[0]", "object"}, "[1]");
  refused({"messages[0]", "role"}, R"([{"content": "x"}])");
  refused({"messages[0]", "robot"}, R"([{"role": "robot", "content": "x"}])");
  refused({"messages[0].content must be"}, R"([{"role": "user", "content": 7}])");
  refused({"messages[1].content[1]", "image_url"}, R"([{"role": "user", "content": "x"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}])");
  refused({"messages[0].content[0]", "text"},
          R"([{"role": "user", "content": [{"type": "text"}]}])");
  refused({"messages[0]", "tool_calls"}, R"([{"role": "assistant", "tool_calls": {}}])");
  refused({"messages[0].tool_calls[0]", "custom"},
          R"([{"role": "assistant", "tool_calls": [{"type": "custom"}]}])");
  refused({"messages[0].tool_calls[0].function", "name"},
          R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}])");
  refused(
      {"messages[0].tool_calls[0].function", "arguments"},
      R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}])");
  refused({"messages[0]", "tool_call_id"},
          R"([{"role": "tool", "tool_call_id": 1, "content": ""}])");
  refused({"messages[0]", "reasoning"}, R"([{"role": "assistant", "reasoning": []}])");
}

TEST(ReplyHistory, OnlyMessagesThatSayElseMayLackContent) {
  for (const char* role : {"user", "system", "developer", "tool", "assistant"}) {
    for (const char* content : {"", R"(, "content": null)"}) {
      expect_error(Errc::BadInput, {"messages[1].content is missing"}, [&] {
        normalize(fmt::format(R"([{{"role": "user", "content": "q"}}, {{"role": "{}"{}}}])", role,
                              content));
      });
    }
  }
  for (const char* message :
       {R"({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]})",
        R"({"role": "assistant", "function_call": {"name": "f"}})",
        R"({"role": "assistant", "content": null, "reasoning_content": "Hm."})",
        R"({"role": "assistant", "content": null, "refusal": "No."})",
        R"({"role": "function", "name": "f", "content": null})",
        R"({"role": "user", "content": ""})", R"({"role": "user", "content": []})"}) {
    EXPECT_EQ(normalize(fmt::format("[{}]", message))[0]["content"], "") << message;
  }
  expect_error(Errc::BadInput, {"messages[0].content is missing"},
               [] { normalize(R"([{"role": "assistant", "tool_calls": []}])"); });
}

TEST(ReplyHistory, Tools) {
  EXPECT_TRUE(normalize_tools(nullptr).is_null());
  EXPECT_TRUE(normalize_tools(Json::array()).is_null());
  EXPECT_EQ(normalize_tools(json(R"([{"type": "function", "name": "f", "parameters": {}},
                                     {"type": "function", "function": {"name": "g"}}])")),
            json(R"([{"type": "function", "function": {"name": "f", "parameters": {}}},
                     {"type": "function", "function": {"name": "g"}}])"));
  const auto refused = [](std::initializer_list<std::string_view> parts, std::string_view text) {
    expect_error(Errc::BadInput, parts, [&] { normalize_tools(json(text)); });
  };
  refused({"tools", "array"}, "{}");
  refused({"tools[0]", "web_search"}, R"([{"type": "web_search"}])");
  refused({"tools[0].function", "name"}, R"([{"type": "function", "function": {}}])");
  refused({"tools[0].function", "parameters"},
          R"([{"type": "function", "function": {"name": "f", "parameters": []}}])");
  refused({"tools[1]", "\"f\"", "tools[0]"}, R"([{"name": "f"}, {"name": "f"}])");
}

}  // namespace
}  // namespace moeflux
