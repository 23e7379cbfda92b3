#include "server/service/call_constraint.h"

#include <algorithm>

#include "text/replies/reply_calls.h"
#include "text/replies/reply_json.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

CallConstraint::CallConstraint(const Tokenizer& tokenizer, std::shared_ptr<TokenMasks> masks,
                               Options options)
    : tokenizer_(tokenizer),
      masks_(std::move(masks)),
      options_(std::move(options)),
      place_(options_.opens_thought ? Place::Thought : Place::Begin) {}

std::span<const std::uint8_t> CallConstraint::allowed() {
  return call_ ? call_->allowed() : std::span<const std::uint8_t>();
}

void CallConstraint::accept(TokenId token) {
  if (!call_) return read(tokenizer_.token_bytes(token));
  call_->accept(token);
  if (options_.repeats && call_->must_end()) call_.reset();
}

// Markers may be tokens of their own or spelled by several, whose last may say more.
void CallConstraint::read(std::string_view text) {
  seen_ += text;
  if (place_ == Place::Begin && !find_begin()) return;
  const std::string_view wanted = place_ == Place::Thought ? kThoughtEnd : options_.opener;
  const std::size_t at = seen_.find(wanted);
  if (at == std::string::npos) {
    seen_.erase(0, seen_.size() - std::min(seen_.size(), wanted.size() - 1));
    return;
  }
  const std::string rest = seen_.substr(at + wanted.size());
  seen_.clear();
  if (place_ == Place::Thought) {
    place_ = Place::Content;
    return read(rest);
  }
  call_.emplace(masks_, GrammarConstraintOptions{.end_tokens = options_.end_tokens});
  if (call_->begin_with(rest)) return;
  call_.reset();  // it is no call, and known to be none
  read(rest);
}

// Thoughts can only begin an answer. False: it cannot be told yet.
bool CallConstraint::find_begin() {
  const auto first = std::find_if_not(seen_.begin(), seen_.end(), is_blank);
  seen_.erase(seen_.begin(), first);
  if (seen_.size() < kThoughtBegin.size() && kThoughtBegin.starts_with(seen_)) return false;
  place_ = seen_.starts_with(kThoughtBegin) ? Place::Thought : Place::Content;
  return true;
}

}  // namespace moeflux
