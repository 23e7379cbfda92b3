#include "engine/draft_governor.h"

#include <fmt/format.h>

namespace moeflux {
namespace {

constexpr int kTrialPasses = 8;
constexpr int kTrialRounds = 2;  // interleaved, so that a slow moment does not decide
constexpr int kExploitPasses = 256;
constexpr int kDoubtfulPasses = 64;   // before the first trials
constexpr double kWorthwhile = 0.03;  // a smaller gain is not told from noise

}  // namespace

DraftGovernor::DraftGovernor(int max_depth, bool doubtful)
    : trials_(static_cast<std::size_t>(max_depth) + 1),
      per_token_(trials_.size()),
      current_(doubtful ? 0 : max_depth),
      on_trial_(max_depth > 0 && !doubtful),
      steps_left_(doubtful ? kDoubtfulPasses : kTrialPasses) {}

void DraftGovernor::record(std::int64_t n_tokens, double seconds) {
  if (trials_.size() == 1) return;
  if (on_trial_) {
    Sum& sum = trials_[static_cast<std::size_t>(current_)];
    sum.seconds += seconds;
    sum.tokens += n_tokens;
  }
  if (--steps_left_ > 0) return;
  steps_left_ = kTrialPasses;
  if (!on_trial_) {
    on_trial_ = true;
    round_ = 0;
    current_ = static_cast<int>(trials_.size()) - 1;
    for (Sum& sum : trials_) sum = {};
  } else if (--current_ < 0) {  // from the deepest down: a short answer gains from the first trial
    current_ = static_cast<int>(trials_.size()) - 1;
    if (++round_ == kTrialRounds) choose();
  }
}

void DraftGovernor::choose() {
  for (std::size_t i = 0; i < trials_.size(); ++i) per_token_[i] = trials_[i].per_token();
  std::size_t best = 0;
  for (std::size_t i = 1; i < trials_.size(); ++i) {
    if (per_token_[i] * (1 + kWorthwhile) < per_token_[best]) best = i;
  }
  switches_ += static_cast<int>(best) != chosen_;
  chosen_ = current_ = static_cast<int>(best);
  on_trial_ = false;
  steps_left_ = kExploitPasses;
}

DraftGovernor::Report DraftGovernor::report() const {
  const double off = per_token_[0], now = per_token_[static_cast<std::size_t>(chosen_)];
  return {.depth = depth(),
          .on_trial = on_trial_,
          .gain = now > 0 ? off / now - 1 : 0,
          .switches = switches_};
}

std::string DraftGovernor::describe() const {
  const Report r = report();
  if (trials_.size() == 1) return "drafts: off";
  if (r.on_trial) return fmt::format("drafts: trying {} per pass", r.depth);
  if (r.depth == 0 && per_token_[0] == 0) return "drafts: off so far";
  if (r.depth == 0) return "drafts: off, they did not pay when tried";
  return fmt::format("drafts: up to {} per pass, {:+.0f} % speed", r.depth, 100 * r.gain);
}

}  // namespace moeflux
