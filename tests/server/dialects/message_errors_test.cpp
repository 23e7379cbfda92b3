// Messages that cannot be used: every dialect names the field as its clients wrote it.
#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

class MessageErrorsTest : public testing::Test {
 protected:
  // The message of a 400; what came instead when it is none.
  std::string refusal(const std::string& path, const char* field, std::string_view list) {
    const Json body = {{field, parse_json(list, "test")}, {"max_tokens", 1}};
    const ClientResponse response = server_.post(path, body);
    if (response.status != 400) return std::to_string(response.status) + " " + response.body;
    const Json error = response.json().at("error");
    return error.is_string() ? error.get<std::string>() : error.at("message").get<std::string>();
  }
  void expect_refused(const std::string& path, const char* field, std::string_view list,
                      const std::string& name) {
    const std::string message = refusal(path, field, list);
    EXPECT_EQ(message.rfind(name + " ", 0), 0u) << path << ": " << message;
  }

  DemoServer server_;
};

TEST_F(MessageErrorsTest, MissingContent) {
  for (const char* path : {"/v1/chat/completions", "/api/chat", "/apply-template"}) {
    for (const char* message :
         {R"({"role": "user"})", R"({"role": "user", "content": null})", R"({"role": "system"})",
          R"({"role": "assistant"})", R"({"role": "tool", "tool_call_id": "x"})"}) {
      expect_refused(path, "messages",
                     fmt::format(R"([{{"role": "user", "content": "q"}}, {}])", message),
                     "messages[1].content");
    }
  }
  expect_refused("/v1/messages", "messages", R"([{"role": "user"}])", "messages.0.content");
  expect_refused("/v1/messages", "messages", R"([{"role": "user", "content": null}])",
                 "messages.0.content");
  expect_refused("/v1/responses", "input", R"([{"role": "user"}])", "input[0].content");
}

TEST_F(MessageErrorsTest, CallsNeedNoContent) {
  const char* const messages = R"([{"role": "user", "content": "q"}, {"role": "assistant",
    "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "x", "content": "r"}])";
  for (const char* path : {"/v1/chat/completions", "/api/chat"})
    EXPECT_EQ(refusal(path, "messages", messages).substr(0, 3), "200") << path;
}

// Items before the bad one become other messages, or none.
TEST_F(MessageErrorsTest, ResponsesNameTheInput) {
  const auto expect_named = [&](const char* item, const char* name) {
    expect_refused("/v1/responses", "input",
                   fmt::format(R"([{{"role": "user", "content": "q"}},
                     {{"type": "reasoning", "summary": []}},
                     {{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{{}}"}},
                     {}])",
                               item),
                   name);
  };
  expect_named(R"({"role": "user", "content": 5})", "input[3].content");
  expect_named(R"({"role": "user", "content": [{"type": "input_image"}]})", "input[3].content[0]:");
  expect_named(R"({"role": "robot", "content": "x"})", "input[3].role");
  expect_named(R"({"type": "function_call_output", "call_id": "a", "output": 5})",
               "input[3].output");
  expect_named(R"({"type": "function_call_output", "call_id": "a", "output": [{"type": "x"}]})",
               "input[3].output[0]:");
  expect_named(R"({"type": "function_call", "call_id": "b", "name": ""})", "input[3].name");
  expect_refused("/v1/responses", "input", R"([{"type": "reasoning", "summary": []}])", "input");
}

}  // namespace
}  // namespace moeflux::test
