#include "engine/prefix/prefix_points.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/paths.h"

namespace moeflux {
namespace {

class PrefixPointsTest : public testing::Test {
 protected:
  PrefixPointsTest()
      : source_(open_source(test::source_path("models/demo"))),
        tokenizer_(load_tokenizer(*source_)) {}

  ChatRequest chat(const std::string& messages) const {
    ChatRequest request;
    request.messages = parse_json(messages, "messages");
    return request;
  }
  std::vector<TokenId> encode(const std::string& markup) const {
    return tokenizer_->encode(MarkedText::all_markup(markup));
  }
  PrefixPoints points(const std::string& jinja, const std::string& messages) {
    const ChatTemplate chat_template(jinja, "test", {});
    const ChatRequest request = chat(messages);
    prompt_ = tokenizer_->encode(chat_template.render(request));
    return find_prefix_points(chat_template, *tokenizer_, request, prompt_);
  }
  // The text up to a position.
  std::string before(std::int64_t position) const {
    return tokenizer_->decode(std::span(prompt_).first(static_cast<std::size_t>(position)));
  }

  std::shared_ptr<const ModelSource> source_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<TokenId> prompt_;
};

// Its template leaves old thoughts out: the next turn differs where the thought begins.
TEST_F(PrefixPointsTest, TheBundledModel) {
  const std::unique_ptr<ChatTemplate> chat_template =
      load_chat_template(*source_, tokenizer_.get());
  const ChatRequest request = chat(
      R"([{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello you"}])");
  prompt_ = tokenizer_->encode(chat_template->render(request));
  const PrefixPoints points = find_prefix_points(*chat_template, *tokenizer_, request, prompt_);
  EXPECT_FALSE(points.answer_stays);
  ASSERT_EQ(points.positions.size(), 2u);
  EXPECT_EQ(before(points.positions[0]),
            "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n");
  EXPECT_EQ(before(points.positions[1]),
            "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nHello you<|im_end|>\n"
            "<|im_start|>assistant\n");
}

// But not those of a turn in which it calls tools.
TEST_F(PrefixPointsTest, TheBundledModelWithTools) {
  const std::unique_ptr<ChatTemplate> chat_template =
      load_chat_template(*source_, tokenizer_.get());
  ChatRequest request = chat(R"([{"role": "user", "content": "Is it raining in Rabat?"}])");
  request.tools = parse_json(
      R"([{"type": "function", "function": {"name": "get_weather", "parameters": {}}}])", "tools");
  prompt_ = tokenizer_->encode(chat_template->render(request));
  const PrefixPoints points = find_prefix_points(*chat_template, *tokenizer_, request, prompt_);
  EXPECT_TRUE(points.answer_stays);
  ASSERT_EQ(points.positions.size(), 2u);
  EXPECT_TRUE(before(points.positions[0]).ends_with("<|im_end|>\n<|im_start|>user\n"));
  EXPECT_TRUE(before(points.positions[1]).ends_with("<|im_start|>assistant\n"));
}

TEST_F(PrefixPointsTest, ATemplateThatKeepsEverything) {
  const PrefixPoints found = points(
      "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}[assistant] {% endif %}",
      R"([{"role": "user", "content": "Hello you"}])");
  EXPECT_TRUE(found.answer_stays || before(found.positions.back()).ends_with("[assistant]"))
      << before(found.positions.back());
}

TEST_F(PrefixPointsTest, ATemplateThatRefusesTrialsGivesNoPoints) {
  const PrefixPoints found = points(
      "{% if messages | length != 2 %}{{ raise_exception('two') }}{% endif %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}",
      R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])");
  EXPECT_TRUE(found.positions.empty());
  EXPECT_FALSE(found.answer_stays);
}

}  // namespace
}  // namespace moeflux
