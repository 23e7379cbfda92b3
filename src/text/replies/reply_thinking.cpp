#include "text/replies/reply_thinking.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "text/replies/reply_calls.h"
#include "text/replies/reply_gemma.h"
#include "text/replies/reply_harmony.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {
namespace {

constexpr std::int64_t kMaxBudget = std::int64_t{1} << 40;

struct Effort {
  std::string_view name;
  std::optional<std::int64_t> budget;
};
constexpr std::array kEfforts = {
    Effort{"minimal", 512},       Effort{"low", 2048},           Effort{"medium", 8192},
    Effort{"high", std::nullopt}, Effort{"xhigh", std::nullopt}, Effort{"max", std::nullopt},
};

const Json* find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

void apply_effort(const Json& effort, std::string_view field, ThinkingChoice& choice) {
  if (!effort.is_string()) fail(Errc::BadInput, "\"{}\" must be a string", field);
  try {
    choice = thinking_of_effort(effort.get_ref<const std::string&>());
  } catch (const Error& error) {
    fail(error.code(), "\"{}\": {}", field, error.what());
  }
}

}  // namespace

ThinkingChoice thinking_of_effort(std::string_view effort) {
  if (effort == "none") return {.enabled = false, .effort = {}, .budget = {}};
  for (const Effort& known : kEfforts) {
    if (known.name == effort) {
      return {.enabled = true,
              .effort = std::string(effort),
              .budget = known.budget,
              .budget_is_of_effort = true};
    }
  }
  fail(Errc::BadInput,
       "unknown reasoning effort \"{}\"; there are none, minimal, low, medium, high, xhigh and max",
       effort.substr(0, 80));
}

ThinkingChoice read_thinking(const Json& request) {
  ThinkingChoice choice;
  if (const Json* reasoning = find(request, "reasoning")) {
    if (const Json* effort = find(*reasoning, "effort")) {
      apply_effort(*effort, "reasoning.effort", choice);
    }
  }
  if (const Json* effort = find(request, "reasoning_effort")) {
    apply_effort(*effort, "reasoning_effort", choice);
  }
  if (const Json* variables = find(request, "chat_template_kwargs")) {
    for (const char* key : {"thinking", "enable_thinking"}) {
      const Json* value = find(*variables, key);
      if (value == nullptr) continue;
      if (!value->is_boolean()) {
        fail(Errc::BadInput, "\"chat_template_kwargs.{}\" must be true or false", key);
      }
      choice.enabled = value->get<bool>();
    }
  }
  if (find(request, "thinking_budget") != nullptr) {
    const JsonFields fields(request, "request");
    const std::int64_t tokens = fields.integer("thinking_budget", -1, kMaxBudget);
    // -1 is how clients say that there is no limit.
    choice.budget = tokens < 0 ? std::nullopt : std::optional(tokens);
    choice.budget_is_of_effort = false;
  }
  return choice;
}

Json thinking_variables(const ThinkingChoice& choice) {
  Json variables = Json::object();
  if (choice.enabled) {
    variables["enable_thinking"] = *choice.enabled;
    variables["thinking"] = *choice.enabled;
  }
  if (choice.effort) variables["reasoning_effort"] = *choice.effort;
  return variables;
}

ThoughtMarkers thought_markers(ReplyFormat format, bool calls_may_follow) {
  if (format == ReplyFormat::Gemma) return {kGemmaThoughtBegin, kGemmaThoughtEnd, "\n<channel|>"};
  if (format != ReplyFormat::Harmony) return {kThoughtBegin, kThoughtEnd, "\n</think>\n\n"};
  return {kHarmonyThought, kHarmonyEnd,
          calls_may_follow ? "<|end|><|start|>assistant"
                           : "<|end|><|start|>assistant<|channel|>final<|message|>"};
}

ThinkingBudget::ThinkingBudget(const Tokenizer& tokenizer, std::int64_t budget, bool opens_thought,
                               const ThoughtMarkers& markers)
    : tokenizer_(&tokenizer),
      budget_(std::max<std::int64_t>(budget, 0)),
      markers_(markers),
      state_(opens_thought ? State::Inside : State::Before) {
  MOEFLUX_ASSERT(markers.closing.find(markers.end) != std::string_view::npos);
  closing_ = tokenizer.encode_markup(markers.closing);
}

std::optional<TokenId> ThinkingBudget::forced() const {
  if (state_ == State::Closing) return closing_[n_closed_];
  if (state_ == State::Inside && n_thought_ >= budget_) return closing_.front();
  return std::nullopt;
}

std::int64_t ThinkingBudget::free_tokens() const {
  switch (state_) {
    case State::Closing:
      return 0;
    case State::Inside:
      return std::max<std::int64_t>(budget_ - n_thought_, 0);
    case State::Before:
      return budget_ + 1;  // the first token may open a thought
    case State::Done:
      break;
  }
  return std::numeric_limits<std::int64_t>::max();
}

void ThinkingBudget::accept(TokenId token) {
  const std::string_view bytes = tokenizer_->token_bytes(token);
  const bool was_forced = forced() == token;
  switch (state_) {
    case State::Before:
      look_for_begin(bytes);
      return;
    case State::Inside:
      if (n_thought_ < budget_ || !was_forced) {
        ++n_thought_;
        if (tail_ends_thought(bytes)) state_ = State::Done;
        return;
      }
      state_ = State::Closing;
      [[fallthrough]];
    case State::Closing:
      if (++n_closed_ == closing_.size()) state_ = State::Done;
      return;
    case State::Done:
      return;
  }
}

// A thought can only begin an answer.
void ThinkingBudget::look_for_begin(std::string_view bytes) {
  tail_ += bytes;
  const std::size_t begin = std::min(tail_.find_first_not_of(" \t\r\n"), tail_.size());
  const std::string_view text = std::string_view(tail_).substr(begin);
  if (text.starts_with(markers_.begin)) {
    state_ = State::Inside;
    n_thought_ = 0;
    tail_.clear();
  } else if (!markers_.begin.starts_with(text)) {
    state_ = State::Done;
    tail_.clear();
  }
}

bool ThinkingBudget::tail_ends_thought(std::string_view bytes) {
  tail_ += bytes;
  if (tail_.find(markers_.end) != std::string::npos) return true;
  const std::size_t keep = markers_.end.size() - 1;
  if (tail_.size() > keep) tail_.erase(0, tail_.size() - keep);
  return false;
}

}  // namespace moeflux
