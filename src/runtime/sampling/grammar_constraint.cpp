#include "runtime/sampling/grammar_constraint.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moeflux {
namespace {

bool is_in(const std::vector<TokenId>& tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

GrammarConstraint::GrammarConstraint(std::shared_ptr<TokenMasks> masks,
                                     GrammarConstraintOptions options)
    : masks_(std::move(masks)),
      options_(std::move(options)),
      phase_(options_.starts_after.empty() ? Phase::Inside : Phase::Waiting),
      cursor_(masks_->start()) {
  for (const TokenId token : options_.end_tokens) {
    if (token < 0 || static_cast<std::size_t>(token) >= masks_->n_ids()) {
      fail(Errc::BadInput, "grammar: the end token {} is not in the vocabulary of {} ids", token,
           masks_->n_ids());
    }
  }
}

std::span<const std::uint8_t> GrammarConstraint::allowed() {
  if (phase_ == Phase::Waiting) return {};
  if (allowed_is_current_) return allowed_;
  allowed_.resize(masks_->n_ids());
  if (phase_ == Phase::Ended) {
    std::fill(allowed_.begin(), allowed_.end(), std::uint8_t{0});
  } else {
    masks_->fill(cursor_, allowed_);
  }
  for (const TokenId token : options_.end_tokens) {
    allowed_[static_cast<std::size_t>(token)] = may_end() ? 1 : 0;
  }
  allowed_is_current_ = true;
  return allowed_;
}

void GrammarConstraint::accept(TokenId token) {
  if (phase_ == Phase::Waiting) {
    if (!is_in(options_.starts_after, token)) return;
    phase_ = Phase::Inside;
    cursor_ = masks_->start();
  } else if (is_in(options_.end_tokens, token) && may_end()) {
    phase_ = Phase::Ended;
  } else if (phase_ == Phase::Ended || is_in(options_.end_tokens, token) ||
             !masks_->advance(cursor_, token)) {
    fail(Errc::BadInput, "grammar: token {} cannot come here", token);
  }
  allowed_is_current_ = false;
  if (phase_ == Phase::Inside && options_.repeats && !options_.starts_after.empty() &&
      cursor_.must_end()) {
    phase_ = Phase::Waiting;
  }
}

bool GrammarConstraint::begin_with(std::string_view text) {
  allowed_is_current_ = false;
  return text.empty() || masks_->advance_bytes(cursor_, text);
}

bool GrammarConstraint::may_end() const {
  return phase_ != Phase::Inside || cursor_.may_end();
}

bool GrammarConstraint::must_end() const {
  return phase_ == Phase::Ended || (phase_ == Phase::Inside && cursor_.must_end());
}

}  // namespace moeflux
