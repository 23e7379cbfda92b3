// /v1/completions as a client sees it.
#include <gtest/gtest.h>

#include "server/demo_server.h"

namespace moeflux::test {
namespace {

class OpenAiCompletionsTest : public testing::Test {
 protected:
  static Json prompt() {
    return {{"prompt",
             "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n"
             "<think>\n\n</think>\n\n"},
            {"temperature", 0}};
  }
  DemoServer server_;
};

TEST_F(OpenAiCompletionsTest, TextGoesOn) {
  const Json body = server_.post("/v1/completions", prompt()).json();
  EXPECT_EQ(body.at("object"), "text_completion");
  EXPECT_EQ(body.at("id").get<std::string>().substr(0, 5), "cmpl-");
  EXPECT_EQ(body.at("choices").at(0).at("text"), "12 + 30 = 42");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 10);
}

TEST_F(OpenAiCompletionsTest, AStreamHasTextAndAnEnd) {
  Json body = prompt();
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const std::vector<std::string> events = server_.post("/completions", body).events();
  std::string text;
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const Json chunk = parse_json(events[i], "chunk");
    EXPECT_EQ(chunk.at("object"), "text_completion");
    text += chunk.at("choices").at(0).at("text").get<std::string>();
  }
  EXPECT_EQ(text, "12 + 30 = 42");
  const Json usage = parse_json(events.at(events.size() - 2), "chunk");
  EXPECT_EQ(usage.at("choices"), Json::array());
  EXPECT_EQ(usage.at("usage").at("completion_tokens"), 10);
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(OpenAiCompletionsTest, SeveralPromptsAndTheirEcho) {
  Json body = {{"prompt", Json::array({"Once upon", "One day"})},
               {"n", 2},
               {"max_tokens", 3},
               {"echo", true},
               {"temperature", 0}};
  const Json answers = server_.post("/v1/completions", body).json();
  ASSERT_EQ(answers.at("choices").size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::string text = answers.at("choices").at(i).at("text");
    EXPECT_EQ(text.rfind(i < 2 ? "Once upon" : "One day", 0), 0u) << text;
    EXPECT_EQ(answers.at("choices").at(i).at("finish_reason"), "length");
  }
  EXPECT_EQ(answers.at("choices").at(0).at("text"), answers.at("choices").at(1).at("text"));
  EXPECT_EQ(answers.at("usage").at("completion_tokens"), 12);
}

TEST_F(OpenAiCompletionsTest, LogprobsInListsSideBySide) {
  Json body = prompt();
  body["logprobs"] = 2;
  const Json logprobs =
      server_.post("/v1/completions", body).json().at("choices").at(0).at("logprobs");
  ASSERT_EQ(logprobs.at("tokens").size(), 10u);
  EXPECT_EQ(logprobs.at("token_logprobs").size(), 10u);
  EXPECT_EQ(logprobs.at("top_logprobs").at(0).size(), 2u);
  EXPECT_EQ(logprobs.at("tokens").at(0), "1");
  EXPECT_EQ(logprobs.at("text_offset").at(0), 0);
  EXPECT_EQ(logprobs.at("text_offset").at(1), 1);
  EXPECT_EQ(logprobs.at("text_offset").at(9), 11);
}

}  // namespace
}  // namespace moeflux::test
