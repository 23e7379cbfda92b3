// Owners of the handles of the C API, the bundled models, and the steps that many tests take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <moeflux/moeflux.h>

#include "support/paths.h"

namespace moeflux::test {

struct Close {
  void operator()(mf_model* model) const { mf_model_close(model); }
  void operator()(mf_ctx* ctx) const { mf_context_free(ctx); }
  void operator()(mf_sampler* sampler) const { mf_sampler_free(sampler); }
};
using ModelHandle = std::unique_ptr<mf_model, Close>;
using ContextHandle = std::unique_ptr<mf_ctx, Close>;
using SamplerHandle = std::unique_ptr<mf_sampler, Close>;

using Tokens = std::vector<std::int32_t>;
using Logits = std::vector<float>;

// Small enough to be opened by many tests: a context of 192 tokens, one thread.
inline ModelHandle open_bundled(const std::string& name, int max_sequences = 4,
                                std::int64_t max_batch = 0) {
  const std::string path = source_path("models/" + name);
  mf_model_params params = mf_model_params_default();
  params.path = path.c_str();
  params.n_threads = 1;
  params.context_length = 192;
  params.max_sequences = max_sequences;
  params.max_batch = max_batch;
  ModelHandle model(mf_model_open(&params));
  EXPECT_NE(model, nullptr) << mf_last_error_message();
  return model;
}

inline ContextHandle new_context(const ModelHandle& model, int max_sequences = 1) {
  mf_context_params params = mf_context_params_default();
  params.max_sequences = max_sequences;
  ContextHandle ctx(mf_context_new(model.get(), &params));
  EXPECT_NE(ctx, nullptr) << mf_last_error_message();
  return ctx;
}

inline Logits eval(const ContextHandle& ctx, const Tokens& tokens, int seq_id = 0) {
  Logits logits(mf_n_vocab(ctx.get()));
  const std::size_t length = mf_memory_seq_length(ctx.get(), seq_id);
  EXPECT_EQ(mf_eval_prompt(ctx.get(), tokens.data(), tokens.size(), length, seq_id, logits.data()),
            0)
      << mf_last_error_message();
  return logits;
}

inline std::int32_t most_likely(const Logits& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The logits after the tokens and after each of the most likely ones that follow.
inline std::vector<Logits> greedy(const ContextHandle& ctx, const Tokens& tokens, int n_steps,
                                  int seq_id = 0) {
  std::vector<Logits> all{eval(ctx, tokens, seq_id)};
  for (int i = 0; i < n_steps; ++i) {
    Logits logits(all.back().size());
    EXPECT_EQ(mf_eval_token(ctx.get(), most_likely(all.back()),
                            mf_memory_seq_length(ctx.get(), seq_id), seq_id, logits.data()),
              0)
        << mf_last_error_message();
    all.push_back(std::move(logits));
  }
  return all;
}

// The prompts of the original's suites.
inline const Tokens kFirstPrompt{1, 100, 500, 1000};
inline const Tokens kSecondPrompt{1, 200, 600, 1100};

}  // namespace moeflux::test
