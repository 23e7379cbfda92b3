// Sampling and whole answers.
#include <cmath>

#include "capi/handles.h"

namespace moeflux::test {
namespace {

class Answers : public testing::Test {
 protected:
  Tokens question(const char* text) {
    const mf_message message{"user", text};
    mf_chat_params chat = mf_chat_params_default();
    chat.messages = &message;
    chat.n_messages = 1;
    chat.variables_json = R"({"enable_thinking": false})";
    Tokens tokens(400);
    std::size_t n = 0;
    EXPECT_EQ(mf_tokenize_chat(model_.get(), &chat, tokens.data(), tokens.size(), &n), MF_OK);
    tokens.resize(n);
    return tokens;
  }
  static int append(const char* text, std::size_t n, void* user) {
    static_cast<std::string*>(user)->append(text, n);
    return 0;
  }

  mf_status generate(const Tokens& prompt, mf_generate_params params) {
    text_.clear();
    answer_.assign(192, -7);
    params.tokens = answer_.data();
    params.tokens_capacity = answer_.size();
    if (params.on_text == nullptr) {
      params.on_text = append;
      params.user = &text_;
    }
    result_.struct_size = sizeof(result_);
    const mf_status status =
        mf_generate(ctx_.get(), 0, prompt.data(), prompt.size(), &params, &result_);
    answer_.resize(result_.n_tokens);
    return status;
  }
  static mf_generate_params greedily() {
    static const mf_sampling_params sampling = [] {
      mf_sampling_params params = mf_sampling_params_default();
      params.temperature = 0;
      return params;
    }();
    mf_generate_params params = mf_generate_params_default();
    params.sampling = &sampling;
    return params;
  }

  ModelHandle model_ = open_bundled("demo");
  ContextHandle ctx_ = new_context(model_);
  std::string text_;
  Tokens answer_;
  mf_generate_result result_{};
};

TEST_F(Answers, SumsAreRight) {
  const Tokens prompt = question("What is 12 + 30?");
  ASSERT_EQ(generate(prompt, greedily()), MF_OK) << mf_last_error_message();
  EXPECT_EQ(text_, "12 + 30 = 42");
  EXPECT_EQ(result_.stop_reason, MF_STOP_END);
  EXPECT_EQ(result_.n_prompt, prompt.size());
  EXPECT_EQ(result_.n_tokens, answer_.size());
  EXPECT_GT(result_.prefill_seconds, 0);

  // The sequence is the prompt and what was fed of the answer.
  Tokens all(192);
  std::size_t n = 0;
  ASSERT_EQ(mf_memory_seq_tokens(ctx_.get(), 0, all.data(), all.size(), &n), MF_OK);
  all.resize(n);
  Tokens expected = prompt;
  expected.insert(expected.end(), answer_.begin(), answer_.end());
  expected.resize(n);
  EXPECT_EQ(all, expected);
  EXPECT_GE(n, prompt.size() + answer_.size() - 1);
}

TEST_F(Answers, AreTheSameStepByStep) {
  const Tokens prompt = question("What is 12 + 30?");
  ASSERT_EQ(generate(prompt, greedily()), MF_OK);
  const ContextHandle other = new_context(model_);
  const SamplerHandle sampler(mf_sampler_new(model_.get(), greedily().sampling));
  ASSERT_EQ(mf_sampler_reset(sampler.get(), prompt.data(), prompt.size()), MF_OK);
  Logits logits = eval(other, prompt);
  Tokens steps;
  for (std::int32_t token = mf_sampler_sample(sampler.get(), logits.data());
       mf_model_is_end(model_.get(), token) == 0 && steps.size() < 100;
       token = mf_sampler_sample(sampler.get(), logits.data())) {
    steps.push_back(token);
    logits = eval(other, {token});
  }
  EXPECT_EQ(steps, answer_);
}

TEST_F(Answers, DraftsChangeNothing) {
  const Tokens prompt = question("Tell me a short story.");
  mf_generate_params params = greedily();
  params.max_tokens = 40;
  ASSERT_EQ(generate(prompt, params), MF_OK) << mf_last_error_message();
  const Tokens with = answer_;
  EXPECT_GE(result_.n_drafted, result_.n_accepted);
  mf_memory_clear(ctx_.get());
  params.no_drafts = 1;
  ASSERT_EQ(generate(prompt, params), MF_OK);
  EXPECT_EQ(answer_, with);
  EXPECT_EQ(result_.n_drafted, 0u);
}

TEST_F(Answers, EndWhereTheyAreToldTo) {
  const Tokens prompt = question("What is 12 + 30?");
  mf_generate_params params = greedily();
  params.max_tokens = 3;
  ASSERT_EQ(generate(prompt, params), MF_OK);
  EXPECT_EQ(result_.stop_reason, MF_STOP_MAX_TOKENS);
  EXPECT_EQ(result_.n_tokens, 3u);

  mf_memory_clear(ctx_.get());
  const char* const stop[] = {"30"};
  params = greedily();
  params.stop = stop;
  params.n_stop = 1;
  ASSERT_EQ(generate(prompt, params), MF_OK);
  EXPECT_EQ(text_, "12 + ");
  EXPECT_EQ(result_.stop_reason, MF_STOP_STRING);

  mf_memory_clear(ctx_.get());
  params = greedily();
  params.ignore_end = 1;
  ASSERT_EQ(generate(prompt, params), MF_OK);
  EXPECT_EQ(result_.stop_reason, MF_STOP_CONTEXT);
  EXPECT_EQ(mf_memory_seq_length(ctx_.get(), 0), 192u);
}

TEST_F(Answers, ACallbackCanEndThem) {
  mf_generate_params params = greedily();
  params.on_text = [](const char*, std::size_t, void* user) { return ++*static_cast<int*>(user); };
  int n_calls = 0;
  params.user = &n_calls;
  ASSERT_EQ(generate(question("What is 12 + 30?"), params), MF_OK);
  EXPECT_EQ(result_.stop_reason, MF_STOP_CALLBACK);
  EXPECT_EQ(n_calls, 1);
  EXPECT_LE(result_.n_tokens, 4u);  // what was under way when the callback said so
}

TEST_F(Answers, ACallbackCannotEvaluate) {
  struct Seen {
    mf_ctx* ctx;
    int status;
    std::size_t length;
  } seen{ctx_.get(), MF_OK, 0};
  mf_generate_params params = greedily();
  params.user = &seen;
  params.on_text = [](const char*, std::size_t, void* user) {
    Seen& s = *static_cast<Seen*>(user);
    s.length = mf_memory_seq_length(s.ctx, 0);
    s.status = mf_eval_token(s.ctx, 1, s.length, 0, nullptr);
    return 0;
  };
  ASSERT_EQ(generate(question("What is 12 + 30?"), params), MF_OK) << mf_last_error_message();
  EXPECT_EQ(seen.status, MF_ERROR_BUSY);
  EXPECT_GT(seen.length, 0u);
  EXPECT_EQ(result_.stop_reason, MF_STOP_END);
}

TEST_F(Answers, SeedsDecide) {
  mf_sampling_params sampling = mf_sampling_params_default();
  sampling.temperature = 1.5;
  mf_generate_params params = mf_generate_params_default();
  params.sampling = &sampling;
  params.max_tokens = 20;
  const Tokens prompt = question("Tell me a short story.");
  std::vector<Tokens> answers;
  for (const std::uint64_t seed : {1, 1, 2}) {
    mf_memory_clear(ctx_.get());
    sampling.seed = seed;
    ASSERT_EQ(generate(prompt, params), MF_OK);
    answers.push_back(answer_);
  }
  EXPECT_EQ(answers[0], answers[1]);
  EXPECT_NE(answers[0], answers[2]);
}

TEST_F(Answers, WrongRequestsChangeNothing) {
  mf_generate_params params = mf_generate_params_default();
  params.max_tokens = -1;
  const Tokens prompt{1, 2, 3};
  EXPECT_EQ(generate(prompt, params), MF_ERROR_BAD_INPUT);
  EXPECT_EQ(generate({}, mf_generate_params_default()), MF_ERROR_BAD_INPUT);
  params = mf_generate_params_default();
  const char* const stop[] = {""};
  params.stop = stop;
  params.n_stop = 1;
  EXPECT_EQ(generate(prompt, params), MF_ERROR_BAD_INPUT);
  EXPECT_EQ(mf_memory_seq_length(ctx_.get(), 0), 0u);
}

TEST_F(Answers, SamplersForbidAndRemember) {
  Logits logits(mf_n_vocab(ctx_.get()), 0.0f);
  logits[10] = 5, logits[20] = 4, logits[30] = 3.9f;
  mf_sampling_params params = mf_sampling_params_default();
  params.temperature = 0;
  const mf_logit_bias forbidden{10, -INFINITY};
  params.logit_bias = &forbidden;
  params.n_logit_bias = 1;
  params.presence_penalty = 1;
  const SamplerHandle sampler(mf_sampler_new(model_.get(), &params));
  ASSERT_NE(sampler, nullptr) << mf_last_error_message();
  EXPECT_EQ(mf_sampler_sample(sampler.get(), logits.data()), 20);
  EXPECT_EQ(mf_sampler_sample(sampler.get(), logits.data()), 30);  // 20 was chosen before
  ASSERT_EQ(mf_sampler_reset(sampler.get(), nullptr, 0), MF_OK);
  EXPECT_EQ(mf_sampler_sample(sampler.get(), logits.data()), 20);
  EXPECT_EQ(mf_sampler_sample(sampler.get(), nullptr), -1);
}

TEST_F(Answers, TheCheckpointRecommends) {
  mf_sampling_params params = mf_sampling_params_default();
  EXPECT_EQ(params.temperature, 1.0);
  ASSERT_EQ(mf_model_sampling_params(model_.get(), &params), MF_OK);
  EXPECT_EQ(params.struct_size, sizeof(params));
  EXPECT_EQ(params.temperature, 0.0);  // do_sample false in its generation_config.json
}

}  // namespace
}  // namespace moeflux::test
