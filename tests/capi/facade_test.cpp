#include <moeflux/moeflux.hpp>

#include "capi/handles.h"

namespace moeflux::test {
namespace {

mf::Model open_demo() {
  const std::string path = source_path("models/demo");
  mf_model_params params = mf_model_params_default();
  params.path = path.c_str();
  params.context_length = 192;
  params.n_threads = 1;
  params.max_sequences = 2;
  return mf::Model(params);
}

TEST(CapiFacade, Answers) {
  const mf::Model model = open_demo();
  mf::Context context(model);
  const std::vector<mf::Token> prompt =
      model.tokenize_chat({{"user", "What is 12 + 30?"}}, R"({"enable_thinking": false})");
  std::string pieces;
  const mf::Answer answer =
      context.generate(prompt, mf_generate_params_default(), 0, [&](std::string_view text) {
        pieces += text;
        return true;
      });
  EXPECT_EQ(answer.text, "12 + 30 = 42");
  EXPECT_EQ(pieces, answer.text);
  EXPECT_EQ(answer.stop_reason, MF_STOP_END);
  EXPECT_EQ(model.detokenize(answer.tokens), answer.text);
  EXPECT_EQ(model.tokenize(answer.text), answer.tokens);
}

TEST(CapiFacade, CutsWithOrWithoutACheckpoint) {
  const mf::Model model = open_demo();
  mf::Context context(model), straight(model);
  context.eval(kFirstPrompt);
  context.cut(2);  // rebuilt
  EXPECT_EQ(context.length(), 2u);
  straight.eval({1, 100});
  EXPECT_EQ(context.eval(9), straight.eval(9));
  context.checkpoint();
  context.eval(kSecondPrompt);
  context.cut(3);
  EXPECT_EQ(context.tokens(), (Tokens{1, 100, 9}));
  context.restore(3);
  const std::vector<unsigned char> state = context.save();
  const std::vector<float> expected = context.eval(11);
  straight.load(state);
  EXPECT_EQ(straight.eval(11), expected);
}

TEST(CapiFacade, Throws) {
  try {
    const mf::Model model("/nonexistent/model");
    FAIL();
  } catch (const mf::Error& error) {
    EXPECT_EQ(error.status(), MF_ERROR_NOT_FOUND);
    EXPECT_STREQ(error.what(), "/nonexistent/model: no such file or directory");
  }
  const mf::Model model = open_demo();
  mf::Context context(model);
  EXPECT_THROW(context.restore(1), mf::Error);
  EXPECT_THROW(context.eval(-1), mf::Error);
  EXPECT_THROW(context.generate({1, 2}, mf_generate_params_default(), 0,
                                [](std::string_view) -> bool { throw std::out_of_range("mine"); }),
               std::out_of_range);
}

TEST(CapiFacade, SamplesFromLogits) {
  const mf::Model model = open_demo();
  mf::Context context(model);
  mf_sampling_params greedy = model.sampling();
  greedy.temperature = 0;
  mf::Sampler sampler(model, greedy);
  sampler.reset(kFirstPrompt);
  const std::vector<float> logits = context.eval(kFirstPrompt);
  EXPECT_EQ(sampler.sample(logits), most_likely(logits));
}

}  // namespace
}  // namespace moeflux::test
