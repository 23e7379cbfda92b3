// One answer as it grows, the same for every front end: given the logits after its last token it
// draws the next one under sampler and constraint, turns tokens into text, notices end tokens, stop
// strings and limits, and says why it ended. Who runs the passes, for one session (generate.h) or
// for many (scheduler/scheduler.h), gives it one row of logits after the other.
//
// A draft is judged by drawing: as long as the drawn token is the drafted one, the row after the
// draft is the next one to draw from. Each draw depends on its logits and its number alone, so
// drafts change the time an answer takes and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token_id.h"
#include "engine/engine.h"
#include "runtime/sampling/sampler.h"
#include "runtime/sampling/token_constraint.h"
#include "text/replies/stop_strings.h"
#include "text/replies/thought_gate.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

struct AnswerRequest {
  std::vector<TokenId> prompt = {};
  SamplingParams sampling = {};
  std::int64_t max_tokens = 0;                        // 0: as many as the context holds
  std::vector<TokenId> stop_tokens = {};              // besides the model's own
  std::vector<std::string> stop = {};                 // texts that end the answer; not part of it
  std::optional<ThoughtGate::Options> thoughts = {};  // where stop strings do not act; none: they
                                                      // act everywhere
  std::vector<TokenId> shown_special = {};            // special tokens that are part of the text
  bool tells_distribution = false;                    // see Answer::drawn_from()
  bool ignore_end = false;                            // go on past the model's own end tokens
  std::shared_ptr<TokenConstraint> constraint = {};   // what the answer may be; for this one alone
  // Lengths of the prompt worth coming back to (the ends of its messages): passes end there, and
  // the session is remembered where anybody keeps sessions.
  std::vector<std::int64_t> keep_at = {};
};

enum class StopReason { EndToken, StopString, MaxTokens, ContextFull, Cancelled };
std::string_view stop_reason_name(
    StopReason reason);  // "end", "stop", "length", "context", "cancelled"

// The tokens of an answer as text that is safe to show: never half a character, never the prefix of
// a stop string. Special tokens have no text, but for those that are asked for: markers that the
// reader of the text has to see (text/replies/reply_format.h).
class TextOutput {
 public:
  // `tokenizer` must outlive this. Throws Error(BadInput) for a bad stop string.
  TextOutput(const Tokenizer& tokenizer, std::vector<std::string> stops,
             std::vector<TokenId> shown_special = {},
             const std::optional<ThoughtGate::Options>& thoughts = {});

  // What has become certain, and the stop string that ended the text, if one did: feed no more.
  StopMatcher::Output feed(TokenId token);

  // The end of the answer: what was held back. Its last characters may still complete a stop
  // string.
  StopMatcher::Output finish();

 private:
  const Tokenizer* tokenizer_;
  StreamDecoder decoder_;
  StopMatcher::Output match(const std::vector<ThoughtGate::Piece>& pieces);

  StopMatcher stops_;
  std::optional<ThoughtGate> gate_;
  std::vector<TokenId> shown_special_;
};

// Each may be empty.
struct AnswerEvents {
  // A token of the answer, and the logits it was drawn from: [n_vocab], valid during the call.
  std::function<void(TokenId, std::span<const float> logits)> on_token = {};
  std::function<void(std::string_view)> on_text = {};  // text to show, in order
  std::function<bool()> cancelled = {};  // asked after every token that is not the last
};

class Answer {
 public:
  // `capacity`: tokens of prompt and answer that the session has room for. `engine` must outlive
  // it. Throws Error: BadInput for bad parameters, NotFound for stop strings without a tokenizer.
  Answer(const Engine& engine, AnswerRequest request, std::int64_t capacity, AnswerEvents events);

  // Draws what follows last() from the logits after it, [n_vocab]. False: the answer has ended.
  bool draw(Sampler& sampler, std::span<const float> logits);
  // Ends it from outside, unless it has ended: what was held back of the text comes out.
  void end(StopReason reason);

  // The prompt, then every token drawn: the end token is the last one, and no part of tokens().
  const std::vector<TokenId>& history() const { return history_; }
  std::span<const TokenId> tokens() const { return {history_.data() + n_prompt(), n_tokens_}; }
  TokenId last() const { return history_.back(); }
  // What the last token was drawn from, after all filters and constraints, most likely first; empty
  // unless the request asks for it.
  const std::vector<TokenProbability>& drawn_from() const { return drawn_from_; }
  std::int64_t n_prompt() const { return n_prompt_; }
  bool has_begun() const { return std::ssize(history_) > n_prompt_; }
  // Tokens that may be drafted after last(): the last token of an answer is never run.
  std::int64_t max_drafts() const;
  const AnswerRequest& request() const { return request_; }  // its prompt is in history()

  bool has_ended() const { return reason_.has_value(); }
  StopReason reason() const { return *reason_; }
  std::optional<std::size_t> stop() const { return stop_; }  // index, for StopReason::StopString

 private:
  TokenId sample(Sampler& sampler, std::span<const float> logits);
  std::optional<StopReason> take(TokenId token, std::span<const float> logits);
  bool is_end(TokenId token) const;
  bool show(const StopMatcher::Output& output);  // true: a stop string is complete

  const Engine& engine_;
  AnswerRequest request_;
  AnswerEvents events_;
  std::int64_t capacity_, n_prompt_;
  std::optional<TextOutput> text_;  // none where the model has no tokenizer
  std::vector<TokenId> history_;
  std::size_t n_tokens_ = 0;
  std::vector<TokenProbability> drawn_from_;
  std::optional<StopReason> reason_;
  std::optional<std::size_t> stop_;
};

}  // namespace moeflux
