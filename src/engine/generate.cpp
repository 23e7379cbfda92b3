#include "engine/generate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "runtime/sampler.h"
#include "text/stop_strings.h"
#include "text/stream_decoder.h"

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

// Collects the answer's text and passes it on.
class TextOutput {
 public:
  TextOutput(const Tokenizer& tokenizer, const GenerateRequest& request,
             const GenerateEvents& events, GenerateResult& result)
      : decoder_(tokenizer, /*skip_special=*/true),
        stops_(request.stop),
        events_(events),
        result_(result) {}

  bool feed(TokenId token) {  // false when a stop string is complete
    const StopMatcher::Output output = stops_.feed(decoder_.feed(token));
    emit(output.text);
    return !output.stopped_by.has_value();
  }

  // Returns false when the very last characters completed a stop string.
  bool finish() {
    const StopMatcher::Output output = stops_.feed(decoder_.finish());
    emit(output.text);
    if (output.stopped_by.has_value()) return false;
    emit(stops_.finish());
    return true;
  }

 private:
  void emit(const std::string& text) {
    if (text.empty()) return;
    result_.text += text;
    if (events_.on_text) events_.on_text(text);
  }

  StreamDecoder decoder_;
  StopMatcher stops_;
  const GenerateEvents& events_;
  GenerateResult& result_;
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
  result.n_prompt = static_cast<std::int64_t>(request.prompt.size());
  TextOutput output(engine.tokenizer(), request, events, result);
  const auto is_end = [&](TokenId token) {
    const auto& ends = engine.stop_tokens();
    return !request.ignore_end && std::find(ends.begin(), ends.end(), token) != ends.end();
  };

  const Activity before = activity_of(engine);
  const Timer prefill_time;
  std::vector<float> logits;
  try {
    logits = engine.prefill(session, request.prompt, events.cancelled);
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
    const TokenId token = sampler.sample({.logits = logits,
                                          .n_valid = static_cast<std::size_t>(engine.n_sampled()),
                                          .allowed = {},
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
    if (!output.feed(token)) {
      result.reason = StopReason::StopString;
      break;
    }
    if (request.max_tokens > 0 &&
        static_cast<std::int64_t>(result.tokens.size()) >= request.max_tokens) {
      result.reason = StopReason::MaxTokens;
      break;
    }
    if (session.length() == session.max_length()) {
      result.reason = StopReason::ContextFull;
      break;
    }
    if (events.cancelled && events.cancelled()) {
      result.reason = StopReason::Cancelled;
      break;
    }
    const Span span{.session = &session, .tokens = {&token, 1}, .logits = logits.data()};
    engine.run({&span, 1});
  }
  if (result.reason != StopReason::StopString && !output.finish())
    result.reason = StopReason::StopString;
  result.decode_seconds = decode_time.seconds();
  result.decode = activity_of(engine) - between;
  return result;
}

}  // namespace moeflux
