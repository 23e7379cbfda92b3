#include "engine/answer.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace moeflux {
namespace {

bool is_in(const std::vector<TokenId>& tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

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

TextOutput::TextOutput(const Tokenizer& tokenizer, std::vector<std::string> stops,
                       std::vector<TokenId> shown_special,
                       const std::optional<ThoughtGate::Options>& thoughts)
    : tokenizer_(&tokenizer),
      decoder_(tokenizer),
      stops_(std::move(stops)),
      shown_special_(std::move(shown_special)) {
  if (thoughts) gate_.emplace(*thoughts);
}

// No stop string reaches over a thought.
StopMatcher::Output TextOutput::match(const std::vector<ThoughtGate::Piece>& pieces) {
  StopMatcher::Output all;
  for (const ThoughtGate::Piece& piece : pieces) {
    if (piece.is_thought) {
      all.text += stops_.finish() + piece.text;
      continue;
    }
    StopMatcher::Output output = stops_.feed(piece.text);
    all.text += output.text;
    all.stopped_by = output.stopped_by;
    if (all.stopped_by) break;
  }
  return all;
}

StopMatcher::Output TextOutput::feed(TokenId token) {
  const bool is_shown = !tokenizer_->is_special(token) || is_in(shown_special_, token);
  const std::string text = is_shown ? decoder_.feed(token) : std::string();
  return gate_ ? match(gate_->feed(text)) : stops_.feed(text);
}

StopMatcher::Output TextOutput::finish() {
  const std::string text = decoder_.finish();
  StopMatcher::Output output;
  if (gate_) {
    std::vector<ThoughtGate::Piece> pieces = gate_->feed(text);
    for (ThoughtGate::Piece& piece : gate_->finish()) pieces.push_back(std::move(piece));
    output = match(pieces);
  } else {
    output = stops_.feed(text);
  }
  if (!output.stopped_by.has_value()) output.text += stops_.finish();
  return output;
}

Answer::Answer(const Engine& engine, AnswerRequest request, std::int64_t capacity,
               AnswerEvents events)
    : engine_(engine),
      request_(std::move(request)),
      events_(std::move(events)),
      capacity_(capacity),
      n_prompt_(std::ssize(request_.prompt)),
      history_(std::move(request_.prompt)) {
  request_.sampling.validate();
  if (request_.max_tokens < 0)
    fail(Errc::BadInput, "max_tokens is {}, but must not be negative", request_.max_tokens);
  if (engine.has_tokenizer() || !request_.stop.empty())
    text_.emplace(engine.tokenizer(), request_.stop, request_.shown_special, request_.thoughts);
}

bool Answer::draw(Sampler& sampler, std::span<const float> logits) {
  const TokenId token = sample(sampler, logits);
  std::optional<StopReason> reason = take(token, logits);
  if (!reason && events_.cancelled && events_.cancelled()) reason = StopReason::Cancelled;
  if (reason) end(*reason);
  return !has_ended();
}

TokenId Answer::sample(Sampler& sampler, std::span<const float> logits) {
  const auto n_valid = static_cast<std::size_t>(engine_.n_sampled());
  std::span<const std::uint8_t> allowed;
  if (request_.constraint) allowed = request_.constraint->allowed();
  const SamplerInput input{.logits = logits,
                           .n_valid = n_valid,
                           .allowed = allowed.first(std::min(allowed.size(), n_valid)),
                           .history = history_,
                           .n_prompt = static_cast<std::size_t>(n_prompt_),
                           .step = n_tokens_};
  if (request_.tells_distribution) drawn_from_ = sampler.distribution(input, request_.sampling);
  return sampler.sample(input, request_.sampling);
}

// The answer grows by a token, which may be its last.
std::optional<StopReason> Answer::take(TokenId token, std::span<const float> logits) {
  history_.push_back(token);
  if (is_end(token)) return StopReason::EndToken;
  ++n_tokens_;
  if (events_.on_token) events_.on_token(token, logits);
  TokenConstraint* constraint = request_.constraint.get();
  if (constraint != nullptr) constraint->accept(token);
  if (text_ && show(text_->feed(token))) return StopReason::StopString;
  if (constraint != nullptr && constraint->must_end()) return StopReason::EndToken;
  if (request_.max_tokens > 0 && static_cast<std::int64_t>(n_tokens_) >= request_.max_tokens)
    return StopReason::MaxTokens;
  if (std::ssize(history_) > capacity_) return StopReason::ContextFull;
  return std::nullopt;
}

bool Answer::is_end(TokenId token) const {
  return is_in(request_.stop_tokens, token) ||
         (!request_.ignore_end && is_in(engine_.stop_tokens(), token));
}

bool Answer::show(const StopMatcher::Output& output) {
  if (!output.text.empty() && events_.on_text) events_.on_text(output.text);
  stop_ = output.stopped_by;
  return stop_.has_value();
}

void Answer::end(StopReason reason) {
  if (has_ended()) return;
  reason_ = reason;
  if (text_ && !stop_ && show(text_->finish())) reason_ = StopReason::StopString;
}

std::int64_t Answer::max_drafts() const {
  const std::int64_t room = capacity_ - std::ssize(history_);
  const std::int64_t left = request_.max_tokens > 0
                                ? request_.max_tokens - static_cast<std::int64_t>(n_tokens_) - 1
                                : std::numeric_limits<std::int64_t>::max();
  return std::max<std::int64_t>(0, std::min(room, left));
}

}  // namespace moeflux
