#include "text/replies/reply_thinking.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/paths.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {
namespace {

using test::expect_error;

ThinkingChoice read(std::string_view request) {
  return read_thinking(parse_json(request, "test"));
}

TEST(ReplyThinking, ReadsRequests) {
  EXPECT_FALSE(read("{}").enabled.has_value());
  EXPECT_EQ(read(R"({"reasoning_effort": "none"})").enabled, false);
  const ThinkingChoice low = read(R"({"reasoning_effort": "low"})");
  EXPECT_EQ(low.enabled, true);
  EXPECT_EQ(low.effort, "low");
  EXPECT_EQ(low.budget, 2048);
  EXPECT_FALSE(read(R"({"reasoning": {"effort": "high"}})").budget.has_value());
  EXPECT_EQ(read(R"({"chat_template_kwargs": {"enable_thinking": false}})").enabled, false);
  const ThinkingChoice both = read(
      R"({"reasoning_effort": "medium", "thinking_budget": 7,
          "chat_template_kwargs": {"enable_thinking": false}})");
  EXPECT_EQ(both.enabled, false);
  EXPECT_EQ(both.budget, 7);
  EXPECT_FALSE(read(R"({"reasoning_effort": "low", "thinking_budget": -1})").budget.has_value());
}

TEST(ReplyThinking, RefusesWhatItDoesNotKnow) {
  expect_error(Errc::BadInput, {"reasoning_effort", "huge", "medium"},
               [] { read(R"({"reasoning_effort": "huge"})"); });
  expect_error(Errc::BadInput, {"reasoning_effort"}, [] { read(R"({"reasoning_effort": 3})"); });
  expect_error(Errc::BadInput, {"chat_template_kwargs.enable_thinking"},
               [] { read(R"({"chat_template_kwargs": {"enable_thinking": "no"}})"); });
  expect_error(Errc::BadInput, {"thinking_budget"}, [] { read(R"({"thinking_budget": 1.5})"); });
}

TEST(ReplyThinking, VariablesOfTheTemplate) {
  EXPECT_EQ(thinking_variables({}), Json::object());
  EXPECT_EQ(thinking_variables(thinking_of_effort("none")),
            parse_json(R"({"enable_thinking": false, "thinking": false})", "test"));
  EXPECT_EQ(thinking_variables(thinking_of_effort("low"))["reasoning_effort"], "low");
}

const Tokenizer& tokenizer() {
  static const Tokenizer demo =
      Tokenizer::from_json_file(test::source_path("models/demo/tokenizer.json"),
                                test::source_path("models/demo/tokenizer_config.json"));
  return demo;
}

// What comes out when a model writes `text` and is stopped by the budget; then it says "Ok".
std::string write(ThinkingBudget& budget, std::string_view text) {
  std::vector<TokenId> wants = tokenizer().encode_markup(text);
  std::vector<TokenId> out;
  std::size_t next = 0;
  bool was_forced = false;
  while (next < wants.size()) {
    const std::optional<TokenId> forced = budget.forced();
    EXPECT_EQ(forced.has_value(), budget.free_tokens() == 0);
    if (!forced && was_forced) {
      wants = tokenizer().encode_markup("Ok");
      next = 0;
      was_forced = false;
    }
    if (forced) was_forced = true;
    const TokenId token = forced ? *forced : wants[next++];
    out.push_back(token);
    budget.accept(token);
    if (out.size() > 200) break;
  }
  return tokenizer().decode(out);
}

TEST(ReplyThinking, BudgetEndsTheThought) {
  const std::size_t n = tokenizer().encode_markup("6 + 8 = 14, so 14.").size();
  ThinkingBudget enough(tokenizer(), static_cast<std::int64_t>(n) + 3, true);
  EXPECT_EQ(write(enough, "6 + 8 = 14, so 14.\n</think>\n\n14"),
            "6 + 8 = 14, so 14.\n</think>\n\n14");
  EXPECT_FALSE(enough.in_thought());

  ThinkingBudget small(tokenizer(), 3, true);
  EXPECT_TRUE(small.in_thought());
  EXPECT_EQ(small.free_tokens(), 3);
  const std::string cut = write(small, "6 + 8 = 14, so 14.\n</think>\n\n14");
  EXPECT_EQ(small.n_thought(), 3);
  EXPECT_TRUE(cut.starts_with("6 +")) << cut;
  EXPECT_TRUE(cut.ends_with("\n</think>\n\nOk")) << cut;

  ThinkingBudget none(tokenizer(), 0, true);
  EXPECT_EQ(write(none, "6"), "\n</think>\n\nOk");
}

TEST(ReplyThinking, BudgetOfAThoughtTheModelOpens) {
  ThinkingBudget opened(tokenizer(), 2, false);
  EXPECT_EQ(opened.free_tokens(), 3);
  EXPECT_EQ(write(opened, "<think>6 + 8 = 14"), "<think>6 +\n</think>\n\nOk");
  ThinkingBudget answers(tokenizer(), 2, false);
  EXPECT_EQ(write(answers, "It is 14 and not <think>6 + 8 = 14"),
            "It is 14 and not <think>6 + 8 = 14");
}

TEST(ReplyThinking, BudgetOfAThoughtInAChannel) {
  const std::string thought = "<|channel|>analysis<|message|>6 + 8 = 14";
  ThinkingBudget budget(tokenizer(), 2, false, thought_markers(ReplyFormat::Harmony));
  EXPECT_EQ(
      write(budget, thought),
      "<|channel|>analysis<|message|>6 +<|end|><|start|>assistant<|channel|>final<|message|>Ok");
  EXPECT_FALSE(budget.in_thought());
  ThinkingBudget with_calls(tokenizer(), 2, true, thought_markers(ReplyFormat::Harmony, true));
  EXPECT_EQ(write(with_calls, "6 + 8 = 14"), "6 +<|end|><|start|>assistantOk");
  ThinkingBudget answers(tokenizer(), 2, false, thought_markers(ReplyFormat::Harmony));
  EXPECT_EQ(write(answers, "<|channel|>final<|message|>6 + 8 = 14"),
            "<|channel|>final<|message|>6 + 8 = 14");
}

TEST(ReplyThinking, ClosingMarkerInPieces) {
  ThinkingBudget budget(tokenizer(), 30, true);
  for (const TokenId token : tokenizer().encode_data("Hm</think>\n")) budget.accept(token);
  EXPECT_FALSE(budget.in_thought());
  EXPECT_FALSE(budget.forced().has_value());
}

}  // namespace
}  // namespace moeflux
