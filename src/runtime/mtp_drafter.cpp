#include "runtime/mtp_drafter.h"

#include <algorithm>

#include "base/error.h"

namespace moeflux {

std::uint64_t MtpDrafter::bytes_needed(const ModelConfig& config, std::int64_t max_tokens) {
  const std::int64_t floats = (max_tokens + 1) * config.d_model + config.n_vocab;
  return static_cast<std::uint64_t>(floats) * sizeof(float);
}

MtpDrafter::MtpDrafter(Forward& forward, const ModelConfig& config, std::int64_t n_valid,
                       MemoryBudget& budget)
    : forward_(forward),
      d_model_(config.d_model),
      n_valid_(std::min<std::int64_t>(n_valid, config.n_vocab)),
      capacity_(forward.max_tokens() + 1),  // a whole pass, and the row that waits for its token
      reservation_(budget.reserve("drafts", bytes_needed(config, forward.max_tokens()))),
      hidden_(static_cast<std::size_t>(capacity_ * d_model_) * sizeof(float)),
      logits_(static_cast<std::size_t>(config.n_vocab)) {}

float* MtpDrafter::rows(Session& session, std::int64_t n) {
  MOEFLUX_ASSERT(n < capacity_);
  forget_taken_back(session);
  if (n_rows_ + n > capacity_) feed(session, n_rows_ - 1, LogitsOf::None);
  n_rows_ += n;
  return row(n_rows_ - n);
}

void MtpDrafter::catch_up(Session& session) {
  forget_taken_back(session);
  if (n_rows_ > 1) feed(session, n_rows_ - 1, LogitsOf::None);
}

void MtpDrafter::draft(Session& session, TokenId next, int count, std::vector<TokenId>& drafts) {
  drafts.clear();
  forget_taken_back(session);
  if (n_rows_ == 0) return;
  following_ = next;
  feed(session, n_rows_, LogitsOf::LastToken);
  const std::int64_t certain = session.mtp_length();
  while (true) {
    drafts.push_back(best_draft());
    if (static_cast<int>(drafts.size()) >= count || session.mtp_length() >= session.max_length())
      break;
    forward_.run_mtp({.session = &session,
                      .hidden = out_,
                      .tokens = {&drafts.back(), 1},
                      .logits_of = LogitsOf::LastToken,
                      .logits = logits_.data(),
                      .out_hidden = out_});
  }
  session.cut_mtp(certain);
}

void MtpDrafter::forget_taken_back(const Session& session) {
  n_rows_ = std::min(n_rows_, session.length() - first_);
  if (n_rows_ > 0 && first_ + n_rows_ == session.length()) return;
  first_ = session.length();
  n_rows_ = 0;
}

// The first n waiting rows go through the head, each with the token that follows it.
void MtpDrafter::feed(Session& session, std::int64_t n, LogitsOf logits_of) {
  session.begin_mtp(first_);
  std::int64_t done = 0;
  while (done < n) {
    const std::int64_t piece = std::min(n - done, forward_.max_tokens());
    const bool last = done + piece == n;
    tokens_.clear();
    for (std::int64_t i = first_ + done + 1; i <= first_ + done + piece; ++i)
      tokens_.push_back(i < session.length() ? session.tokens()[static_cast<std::size_t>(i)]
                                             : following_);
    // The head's own output takes the place of what it has read.
    forward_.run_mtp({.session = &session,
                      .hidden = row(done),
                      .tokens = tokens_,
                      .logits_of = last ? logits_of : LogitsOf::None,
                      .logits = logits_.data(),
                      .out_hidden = row(done)});
    done += piece;
  }
  out_ = row(n - 1);
  if (n < n_rows_) std::copy_n(row(n), (n_rows_ - n) * d_model_, row(0));
  first_ += n;
  n_rows_ -= n;
}

TokenId MtpDrafter::best_draft() const {
  return static_cast<TokenId>(std::max_element(logits_.begin(), logits_.begin() + n_valid_) -
                              logits_.begin());
}

}  // namespace moeflux
