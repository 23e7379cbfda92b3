#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/text_output.h"
#include "runtime/sampling/sampler.h"

namespace moeflux {
namespace {

class Timer {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::EndToken:
      return "end";
    case StopReason::StopString:
      return "stop";
    case StopReason::MaxTokens:
      return "length";
    case StopReason::ContextFull:
      return "context";
    case StopReason::Cancelled:
      return "cancelled";
  }
  return "?";
}

GenerateResult generate(Engine& engine, Session& session, const GenerateRequest& request,
                        const GenerateEvents& events) {
  request.sampling.validate();
  GenerateResult result;
  TextOutput text(engine.tokenizer(), request.stop, request.shown_special);
  const auto emit = [&](const StopMatcher::Output& output) {  // false: a stop string is complete
    result.text += output.text;
    if (events.on_text && !output.text.empty()) events.on_text(output.text);
    return !output.stopped_by.has_value();
  };
  const auto is_end = [&](TokenId token) {
    const auto& ends = engine.stop_tokens();
    return !request.ignore_end && std::find(ends.begin(), ends.end(), token) != ends.end();
  };

  const Activity before = activity_of(engine);
  const Timer prefill_time;
  Decoder decoder(engine, session, request.drafts);
  std::span<const float> logits;
  try {
    const auto feed = [&](std::span<const TokenId> piece, std::int64_t n_prompt) {
      logits = decoder.prefill(piece, n_prompt, events.cancelled);
      result.n_prompt += std::ssize(piece);
      if (events.feed_prompt) decoder.catch_up();  // the session may be kept as it is now
    };
    events.feed_prompt ? events.feed_prompt(request.prompt, feed)
                       : feed(request.prompt, std::ssize(request.prompt));
  } catch (const Error& error) {
    if (error.code() != Errc::Cancelled) throw;
    result.reason = StopReason::Cancelled;
    result.prefill_seconds = prefill_time.seconds();
    return result;
  }
  result.prefill_seconds = prefill_time.seconds();
  const Activity between = activity_of(engine);
  result.prefill = between - before;

  const Timer decode_time;
  Sampler sampler;
  std::vector<TokenId> history = request.prompt;
  while (true) {
    const auto n_valid = static_cast<std::size_t>(engine.n_sampled());
    std::span<const std::uint8_t> allowed;
    if (request.constraint != nullptr) allowed = request.constraint->allowed();
    const TokenId token =
        sampler.sample({.logits = logits,
                        .n_valid = n_valid,
                        .allowed = allowed.first(std::min(allowed.size(), n_valid)),
                        .history = history,
                        .n_prompt = request.prompt.size(),
                        .step = result.tokens.size()},
                       request.sampling);
    history.push_back(token);
    if (is_end(token)) {
      result.reason = StopReason::EndToken;
      break;
    }
    result.tokens.push_back(token);
    if (request.constraint != nullptr) request.constraint->accept(token);
    if (!emit(text.feed(token))) {
      result.reason = StopReason::StopString;
      break;
    }
    if (request.constraint != nullptr && request.constraint->must_end()) {
      result.reason = StopReason::EndToken;
      break;
    }
    if (request.max_tokens > 0 &&
        static_cast<std::int64_t>(result.tokens.size()) >= request.max_tokens) {
      result.reason = StopReason::MaxTokens;
      break;
    }
    if (decoder.length() == session.max_length()) {
      result.reason = StopReason::ContextFull;
      break;
    }
    if (events.cancelled && events.cancelled()) {
      result.reason = StopReason::Cancelled;
      break;
    }
    logits = decoder.advance(token);
  }
  decoder.settle();
  if (result.reason != StopReason::StopString && !emit(text.finish()))
    result.reason = StopReason::StopString;
  result.decode_seconds = decode_time.seconds();
  result.decode = activity_of(engine) - between;
  result.drafts = decoder.stats();
  return result;
}

}  // namespace moeflux
