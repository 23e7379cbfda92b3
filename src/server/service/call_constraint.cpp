#include "server/service/call_constraint.h"

#include <algorithm>
#include <utility>

#include "text/replies/reply_harmony.h"
#include "text/replies/reply_json.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

CallConstraint::CallConstraint(const Tokenizer& tokenizer, std::shared_ptr<TokenMasks> masks,
                               Options options)
    : tokenizer_(tokenizer),
      masks_(std::move(masks)),
      options_(std::move(options)),
      marks_(thought_markers(options_.format)),
      place_(options_.opens_thought ? Place::Thought
             : options_.in_answer   ? Place::Content
                                    : Place::Begin) {}

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
  if (options_.format == ReplyFormat::Harmony) return read_harmony();
  if (place_ == Place::Begin && !find_begin()) return;
  const std::string_view wanted = place_ == Place::Thought ? marks_.end : options_.opener;
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
  begin_call(rest);
}

void CallConstraint::begin_call(const std::string& rest) {
  call_.emplace(masks_, GrammarConstraintOptions{.end_tokens = options_.end_tokens});
  if (call_->begin_with(rest)) return;
  call_.reset();  // it is no call, and known to be none
  read(rest);
}

// Only the head of a message (Place::Begin) says whom it is for.
void CallConstraint::read_harmony() {
  while (true) {
    const bool in_head = place_ == Place::Begin;
    const std::vector<std::string> wanted =
        in_head
            ? std::vector<std::string>{std::string(kHarmonyMessage), options_.opener}
            : std::vector<std::string>{std::string(kHarmonyStart), std::string(kHarmonyChannel)};
    const std::size_t first = seen_.find(wanted[0]), second = seen_.find(wanted[1]);
    const std::size_t at = std::min(first, second);
    if (at == std::string::npos) {
      const std::size_t keep = std::max(wanted[0].size(), wanted[1].size()) - 1;
      seen_.erase(0, seen_.size() - std::min(seen_.size(), keep));
      return;
    }
    const bool is_call = in_head && second < first;
    seen_.erase(0, at + wanted[second < first ? 1 : 0].size());
    if (is_call) return begin_call(std::exchange(seen_, {}));
    place_ = in_head ? Place::Content : Place::Begin;
  }
}

// Thoughts can only begin an answer. False: it cannot be told yet.
bool CallConstraint::find_begin() {
  const auto first = std::find_if_not(seen_.begin(), seen_.end(), is_blank);
  seen_.erase(seen_.begin(), first);
  if (seen_.size() < marks_.begin.size() && marks_.begin.starts_with(seen_)) return false;
  place_ = seen_.starts_with(marks_.begin) ? Place::Thought : Place::Content;
  return true;
}

}  // namespace moeflux
