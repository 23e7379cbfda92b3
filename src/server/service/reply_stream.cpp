#include "server/service/reply_stream.h"

#include "runtime/sampling/log_probabilities.h"

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
  if (prompt.is_chat) parser_ = make_reply_parser(prompt.format, prompt.reply);
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
  if (options_.top_logprobs) report_token(event);
}

void ReplyStream::report_token(const JobToken& event) {
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
