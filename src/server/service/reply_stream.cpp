#include "server/service/reply_stream.h"

#include <algorithm>
#include <cmath>

#include "runtime/sampling/log_probabilities.h"
#include "text/replies/reply_harmony.h"

namespace moeflux {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

FinishReason finish_reason(const JobEnded& event, bool has_calls) {
  if (event.error) return FinishReason::Error;
  if (event.reason == StopReason::MaxTokens || event.reason == StopReason::ContextFull)
    return FinishReason::Length;
  if (event.reason == StopReason::Cancelled) return FinishReason::Cancelled;
  return has_calls ? FinishReason::ToolCalls : FinishReason::Stop;
}

}  // namespace

ReplyStream::ReplyStream(const Engine& engine, ServiceMetrics& metrics,
                         const GenerationPrompt& prompt, Options options, GenerationSink sink)
    : engine_(engine),
      metrics_(metrics),
      options_(std::move(options)),
      sink_(std::move(sink)),
      in_thought_(prompt.reply.opens_thought) {
  if (prompt.is_chat) begin_parser(prompt);
}

// A reply that was begun by the prompt is read from its beginning, and what was there is not told.
void ReplyStream::begin_parser(const GenerationPrompt& prompt) {
  parser_ = make_reply_parser(prompt.format, prompt.reply);
  if (prompt.begun.empty()) return;
  begun_left_ = prompt.begun;
  if (prompt.format == ReplyFormat::Harmony && begun_left_.starts_with(kHarmonyAnswer))
    begun_left_.erase(0, kHarmonyAnswer.size());
  ReplyPieces pieces = parser_->feed(prompt.begun);
  const bool is_text = std::all_of(pieces.begin(), pieces.end(), [](const ReplyPiece& piece) {
    return std::holds_alternative<ContentDelta>(piece) ||
           std::holds_alternative<ReasoningDelta>(piece);
  });
  if (is_text) return drop_begun(pieces);
  begun_left_.clear();  // somebody's text looks like a call, but is none
  parser_ = make_reply_parser(prompt.format, prompt.reply);
}

void ReplyStream::drop_begun(ReplyPieces& pieces) {
  for (ReplyPiece& piece : pieces) {
    std::string* text = nullptr;
    if (auto* content = std::get_if<ContentDelta>(&piece)) text = &content->text;
    if (auto* thought = std::get_if<ReasoningDelta>(&piece)) text = &thought->text;
    if (text == nullptr || begun_left_.empty()) continue;
    const auto [differs, left] =
        std::mismatch(text->begin(), text->end(), begun_left_.begin(), begun_left_.end());
    const bool all = differs == text->end();
    begun_left_.erase(begun_left_.begin(), left);
    text->erase(text->begin(), differs);
    if (!all) begun_left_.clear();
  }
  std::erase_if(pieces, [](const ReplyPiece& piece) {
    const auto* content = std::get_if<ContentDelta>(&piece);
    const auto* thought = std::get_if<ReasoningDelta>(&piece);
    return (content != nullptr && content->text.empty()) ||
           (thought != nullptr && thought->text.empty());
  });
}

void ReplyStream::take(const JobEvent& event) {
  std::visit([this](const auto& each) { on(each); }, event);
}

void ReplyStream::on(const JobStarted& event) {
  has_started_ = true;
  start_ = event;
  started_ = Clock::now();
  before_ = read_engine(engine_);
  sink_(options_.choice, GenerationStarted{event.n_prompt, event.n_cached});
}

void ReplyStream::on(const JobProgress& event) {
  metrics_.set_engine(read_engine(engine_));
  sink_(options_.choice, PromptProgress{event.n_done, event.n_prompt, start_.n_cached,
                                        seconds_between(started_, Clock::now())});
}

void ReplyStream::on(const JobToken& event) {
  const Clock::time_point now = Clock::now();
  if (has_token_)
    metrics_.add_token_time(seconds_between(last_token_, now));
  else
    metrics_.add_first_token_time(seconds_between(submitted_, now));
  has_token_ = true;
  last_token_ = now;
  if (in_thought_) ++n_reasoning_;
  if (options_.top_logprobs || options_.report_tokens) report_token(event);
}

void ReplyStream::report_token(const JobToken& event) {
  if (!options_.top_logprobs) return sink_(options_.choice, TokenEvent{candidate(event.id, 0), {}});
  if (!event.drawn_from.empty()) return report_drawn(event);
  const auto n_valid = static_cast<std::size_t>(engine_.n_sampled());
  const LogProbabilities probabilities(event.logits.first(n_valid));
  TokenEvent token{candidate(event.id, probabilities.of(event.id)), {}};
  const auto n_top = static_cast<std::size_t>(*options_.top_logprobs);
  if (n_top > 0) {
    for (const TokenLogProbability& each : probabilities.top(n_top))
      token.top.push_back(candidate(each.id, each.log_probability));
  }
  sink_(options_.choice, std::move(token));
}

void ReplyStream::report_drawn(const JobToken& event) {
  const auto of = [this](const TokenProbability& each) {
    return candidate(each.id, static_cast<float>(std::log(each.probability)));
  };
  const auto drawn =
      std::find_if(event.drawn_from.begin(), event.drawn_from.end(),
                   [&](const TokenProbability& each) { return each.id == event.id; });
  TokenEvent token{drawn == event.drawn_from.end() ? candidate(event.id, 0) : of(*drawn), {}};
  const auto n_top = static_cast<std::size_t>(*options_.top_logprobs);
  for (const TokenProbability& each :
       event.drawn_from.first(std::min(n_top, event.drawn_from.size()))) {
    if (each.probability > 0) token.top.push_back(of(each));
  }
  sink_(options_.choice, std::move(token));
}

TokenCandidate ReplyStream::candidate(TokenId id, float log_probability) const {
  return {id, std::string(engine_.tokenizer().token_bytes(id)), log_probability};
}

void ReplyStream::on(const JobText& event) {
  if (parser_ == nullptr)
    sink_(options_.choice, ContentDelta{std::string(event.text)});
  else
    emit(parser_->feed(event.text));
}

void ReplyStream::emit(ReplyPieces pieces) {
  if (!begun_left_.empty()) drop_begun(pieces);
  for (ReplyPiece& piece : pieces) {
    in_thought_ = std::holds_alternative<ReasoningDelta>(piece);
    if (const auto* end = std::get_if<ToolCallEnd>(&piece)) has_calls_ |= end->complete;
    std::visit([this](auto& each) { sink_(options_.choice, GenerationEvent(std::move(each))); },
               piece);
  }
}

void ReplyStream::on(const JobEnded& event) {
  const bool complete = !event.error && event.reason == StopReason::EndToken;
  if (parser_ != nullptr) emit(parser_->finish(complete ? ReplyEnd::Complete : ReplyEnd::Cut));
  GenerationEnded ended;
  ended.reason = finish_reason(event, has_calls_);
  if (event.stop) ended.stop = options_.stop.at(*event.stop);
  ended.error = event.error;
  ended.stats = event.stats;
  ended.n_reasoning = n_reasoning_;
  const EngineReading now = read_engine(engine_);
  ended.engine = has_started_ ? now - before_ : now - now;
  metrics_.set_engine(now);
  metrics_.add_ended(ended.reason == FinishReason::Cancelled, ended.error.has_value(), event.stats);
  sink_(options_.choice, ended);
}

}  // namespace moeflux
