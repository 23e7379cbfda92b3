// Choosing tokens, and whole answers.
#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/params.h"
#include "engine/generate.h"

namespace moeflux::capi {
namespace {

int stop_reason(StopReason reason, bool by_callback) {
  constexpr int kByReason[] = {MF_STOP_END, MF_STOP_STRING, MF_STOP_MAX_TOKENS, MF_STOP_CONTEXT,
                               MF_STOP_CANCELLED};
  static_assert(std::size(kByReason) == static_cast<std::size_t>(StopReason::Cancelled) + 1);
  return by_callback && reason == StopReason::Cancelled
             ? MF_STOP_CALLBACK
             : kByReason[static_cast<std::size_t>(reason)];
}

AnswerRequest request_of(const mf_ctx& ctx, const mf_generate_params& params,
                         std::span<const TokenId> prompt) {
  AnswerRequest request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.sampling = sampling_params(params.sampling, ctx.engine().source());
  if (params.max_tokens < 0)
    fail_with(MF_ERROR_BAD_INPUT, "max_tokens must not be negative, but is {}", params.max_tokens);
  request.max_tokens = params.max_tokens;
  if (params.n_stop > 0) need(params.stop, "stop");
  for (std::size_t i = 0; i < params.n_stop; ++i)
    request.stop.emplace_back(&need(params.stop[i], "stop string"));
  request.ignore_end = params.ignore_end != 0;
  if (params.tokens_capacity > 0) need(params.tokens, "tokens");
  return request;
}

mf_generate_result result_of(const GenerateResult& answer, bool by_callback) {
  mf_generate_result result{};
  result.struct_size = sizeof result;
  result.stop_reason = stop_reason(answer.reason, by_callback);
  result.n_prompt = static_cast<std::size_t>(answer.n_prompt);
  result.n_tokens = answer.tokens.size();
  result.n_drafted = static_cast<std::size_t>(answer.drafts.drafted);
  result.n_accepted = static_cast<std::size_t>(answer.drafts.accepted);
  result.prefill_seconds = answer.prefill_seconds;
  result.decode_seconds = answer.decode_seconds;
  return result;
}

}  // namespace
}  // namespace moeflux::capi

using namespace moeflux;
using namespace moeflux::capi;

mf_status mf_model_sampling_params(const mf_model* model, mf_sampling_params* params) {
  return guarded([&] {
    const Engine& engine = need(model, "model").shared->engine;
    write_result(&need(params, "params"), to_c(sampling_params(nullptr, engine.source())),
                 "mf_sampling_params");
  });
}

mf_sampler* mf_sampler_new(mf_model* model, const mf_sampling_params* params) {
  return guarded_value<mf_sampler*>(nullptr, [&] {
    auto sampler = std::make_unique<mf_sampler>();
    sampler->shared = need(model, "model").shared;
    sampler->params = sampling_params(params, sampler->shared->engine.source());
    return sampler.release();
  });
}

void mf_sampler_free(mf_sampler* sampler) {
  delete sampler;
}

mf_status mf_sampler_reset(mf_sampler* sampler, const int32_t* prompt, size_t n) {
  return guarded([&] {
    mf_sampler& s = need(sampler, "sampler");
    const std::span<const TokenId> tokens = tokens_of(s.shared->engine, prompt, n, "prompt");
    s.history.assign(tokens.begin(), tokens.end());
    s.n_prompt = n;
  });
}

int32_t mf_sampler_sample(mf_sampler* sampler, const float* logits) {
  return guarded_value<int32_t>(-1, [&] {
    mf_sampler& s = need(sampler, "sampler");
    const Engine& engine = s.shared->engine;
    const TokenId token = s.sampler.sample(
        {.logits = {&need(logits, "logits"), static_cast<std::size_t>(engine.config().n_vocab)},
         .n_valid = static_cast<std::size_t>(engine.n_sampled()),
         .allowed = {},
         .history = s.history,
         .n_prompt = s.n_prompt,
         .step = s.history.size() - s.n_prompt},
        s.params);
    s.history.push_back(token);
    return token;
  });
}

mf_status mf_generate(mf_ctx* ctx, int seq_id, const int32_t* prompt, size_t n_prompt,
                      const mf_generate_params* params, mf_generate_result* result) {
  return guarded([&] {
    if (n_prompt == 0) fail_with(MF_ERROR_BAD_INPUT, "the prompt is empty");
    const std::span<const TokenId> tokens(&need(prompt, "prompt"), n_prompt);
    const mf_generate_params given = read_params(params, "mf_generate_params");
    if (result != nullptr) write_result(result, mf_generate_result{}, "mf_generate_result");

    Evaluation evaluation(need(ctx, "ctx"));
    const AnswerRequest request = request_of(*ctx, given, tokens);
    check_append(*ctx, seq_id, std::nullopt, tokens);
    Session& session = sequence(*ctx, seq_id);

    bool by_callback = false;
    const std::int64_t start = session.length();
    GenerateOptions options;
    options.drafts = {.mtp = given.no_drafts == 0, .ngram = given.no_drafts == 0};
    options.events.cancelled = [&] {
      const auto done = static_cast<std::uint64_t>(session.length() - start);
      if (done < n_prompt && ctx->progress != nullptr &&
          ctx->progress(done, n_prompt, ctx->progress_user) != 0)
        by_callback = true;
      return by_callback || evaluation.cancelled();
    };
    if (given.on_text != nullptr) {
      options.events.on_text = [&](std::string_view text) {
        if (!by_callback && given.on_text(text.data(), text.size(), given.user) != 0)
          by_callback = true;
      };
    }
    const GenerateResult answer = generate(ctx->engine(), session, request, options);
    const std::size_t n = std::min(answer.tokens.size(), given.tokens_capacity);
    std::copy_n(answer.tokens.begin(), n, given.tokens);
    if (result != nullptr)
      write_result(result, result_of(answer, by_callback), "mf_generate_result");
  });
}
