#include "engine/generate.h"

#include <chrono>

#include "base/error.h"
#include "base/stopwatch.h"

namespace moeflux {
namespace {

// Logits after the last token of the prompt. Throws Error(Cancelled).
std::span<const float> read_prompt(Session& session, const AnswerRequest& request,
                                   const GenerateOptions& options, Decoder& decoder,
                                   GenerateResult& result) {
  std::span<const float> logits;
  const auto feed = [&](std::span<const TokenId> piece, std::int64_t n_prompt) {
    logits = decoder.prefill(piece, n_prompt, options.events.cancelled);
    result.n_prompt += std::ssize(piece);
    if (options.sync != nullptr) decoder.catch_up();  // the session may be kept as it is now
  };
  const std::int64_t n_prompt = std::ssize(request.prompt);
  // Where the prompt is empty or too long, reading it says so.
  if (options.sync == nullptr || n_prompt == 0 || n_prompt > session.max_length()) {
    feed(request.prompt, n_prompt);
    return logits;
  }
  result.reused = options.sync->sync(session, request.prompt);
  if (options.on_prompt)
    options.on_prompt(n_prompt - result.reused.n_tokens, result.reused.n_tokens);
  options.sync->feed(session, request.prompt, request.keep_at, feed);
  return logits;
}

}  // namespace

GenerateResult generate(Engine& engine, Session& session, const AnswerRequest& request,
                        const GenerateOptions& options) {
  GenerateResult result;
  AnswerEvents events = options.events;
  events.on_text = [&](std::string_view text) {
    result.text += text;
    if (options.events.on_text) options.events.on_text(text);
  };
  const std::int64_t n_before = options.sync != nullptr ? 0 : session.length();
  Answer answer(engine, request, session.max_length() - n_before, std::move(events));
  const Activity before = activity_of(engine);
  const auto start = std::chrono::steady_clock::now();
  Decoder decoder(engine, session, options.drafts);
  std::span<const float> logits;
  try {
    logits = read_prompt(session, request, options, decoder, result);
  } catch (const Error& error) {
    if (error.code() != Errc::Cancelled) throw;
    result.reason = StopReason::Cancelled;
    result.prefill_seconds = seconds_since(start);
    return result;
  }
  result.prefill_seconds = seconds_since(start);
  const Activity between = activity_of(engine);
  result.prefill = between - before;

  const auto decode_start = std::chrono::steady_clock::now();
  Sampler sampler;
  while (answer.draw(sampler, logits)) logits = decoder.advance(answer.last(), answer.max_drafts());
  decoder.settle();
  result.tokens.assign(answer.tokens().begin(), answer.tokens().end());
  result.reason = answer.reason();
  result.decode_seconds = seconds_since(decode_start);
  result.decode = activity_of(engine) - between;
  result.drafts = decoder.stats();
  if (options.sync != nullptr && options.keep_answer && result.reason != StopReason::Cancelled)
    options.sync->remember(session);
  return result;
}

}  // namespace moeflux
