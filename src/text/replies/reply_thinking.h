// Whether a model thinks before it answers, and for how long.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/token_id.h"
#include "text/replies/reply_parser.h"

namespace moeflux {

class Tokenizer;

struct ThinkingChoice {
  std::optional<bool> enabled;         // nothing: as the template has it
  std::optional<std::string> effort;   // "low", "medium", "high", ... for templates that know it
  std::optional<std::int64_t> budget;  // tokens of the thought
  bool budget_is_of_effort = false;    // nobody has named it
};

// "none" switches thinking off; "minimal", "low", "medium" and "high" limit it to the budgets in
// docs/REPLIES.md or not at all; "xhigh" and "max" do not limit it. Throws BadInput for other
// words.
ThinkingChoice thinking_of_effort(std::string_view effort);

// From the fields of a request: reasoning_effort or reasoning.effort, thinking_budget,
// chat_template_kwargs.enable_thinking (or .thinking). What is more specific wins. Throws BadInput
// naming the field.
ThinkingChoice read_thinking(const Json& request);

// The variables a template gets for it: enable_thinking, thinking, reasoning_effort.
Json thinking_variables(const ThinkingChoice& choice);

// What stands around the thoughts of a format, and what has to be written to end one.
struct ThoughtMarkers {
  std::string_view begin, end, closing;
};
// `calls_may_follow`: a closed thought leaves it open what comes then, where a format says so.
ThoughtMarkers thought_markers(ReplyFormat format, bool calls_may_follow = false);

// Counts the tokens of a thought, and says which token must come next when it has to end.
//
// Before each token: next = forced(). If it has a value, that token is the answer's next one,
// whatever the logits say. After each token, forced or drawn: accept(token). Drafts may run at most
// free_tokens() ahead. in_thought() tells when a grammar for the answer may not apply yet.
class ThinkingBudget {
 public:
  // `tokenizer` must outlive this.
  ThinkingBudget(const Tokenizer& tokenizer, std::int64_t budget, bool opens_thought,
                 const ThoughtMarkers& markers = thought_markers(ReplyFormat::Plain));

  std::optional<TokenId> forced() const;
  void accept(TokenId token);

  std::int64_t free_tokens() const;  // so many can follow before one may be forced
  bool in_thought() const { return state_ == State::Inside || state_ == State::Closing; }
  std::int64_t n_thought() const { return n_thought_; }  // tokens of the thought so far

 private:
  enum class State { Before, Inside, Closing, Done };
  bool tail_ends_thought(std::string_view bytes);
  void look_for_begin(std::string_view bytes);

  const Tokenizer* tokenizer_;
  std::int64_t budget_;
  ThoughtMarkers markers_;
  std::vector<TokenId> closing_;
  State state_;
  std::string tail_;  // the end of the text, long enough to find a marker that comes in pieces
  std::int64_t n_thought_ = 0;
  std::size_t n_closed_ = 0;  // of closing_
};

}  // namespace moeflux
