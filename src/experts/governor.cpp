#include "experts/governor.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr int kSettleSteps = 2;     // of each trial: reads of the width before still run
constexpr int kTrialSteps = 6;      // of each trial, settling included
constexpr int kTrialRounds = 2;     // interleaved, so that a slow moment does not decide
constexpr int kExploitSteps = 256;  // twice as many after each time that changed nothing
constexpr int kMostExploitSteps = 2048;
constexpr double kWorthwhile = 0.03;  // a smaller gain is not told from noise
constexpr double kNearlyAll = 0.9;    // of prefetches used: more of them cost the drive nothing
constexpr double kWaitMatters = 0.05;
constexpr double kMemory = 0.9;  // of the moving averages

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

constexpr std::int64_t kSurelyAll = 8;  // choices per expert

std::size_t index_of(std::int64_t n_rows) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(n_rows)) - 1);
}

}  // namespace

LookaheadGovernor::LookaheadGovernor(std::vector<int> widths, FirstWidth first)
    : widths_(std::move(widths)),
      trials_(widths_.size()),
      seconds_of_(widths_.size()),
      steps_left_(kTrialSteps),
      exploit_steps_(kExploitSteps) {
  MOEFLUX_ASSERT(!widths_.empty() && widths_[0] == 0);
  if (first == FirstWidth::Widest) current_ = chosen_ = widths_.size() - 1;
}

LookaheadGovernor LookaheadGovernor::for_top_k(int top_k, FirstWidth first) {
  if (top_k <= 0) return LookaheadGovernor({0});
  std::vector<int> widths{0, std::max(1, top_k / 2), std::max(1, top_k * 3 / 4), top_k};
  widths.erase(std::unique(widths.begin(), widths.end()), widths.end());
  return LookaheadGovernor(std::move(widths), first);
}

void LookaheadGovernor::record(const StepSample& sample) {
  const auto wall = static_cast<double>(std::max<std::uint64_t>(sample.wall_ns, 1));
  wait_share_ += (1 - kMemory) * (static_cast<double>(sample.wait_ns) / wall - wait_share_);
  if (sample.prefetched > 0) {
    const double used =
        static_cast<double>(sample.prefetches_used) / static_cast<double>(sample.prefetched);
    precision_ += (1 - kMemory) * (std::min(used, 1.0) - precision_);
  }
  if (widths_.size() == 1) return;
  if (on_trial_ && steps_left_ <= kTrialSteps - kSettleSteps) {
    Trial& trial = trials_[current_];
    trial.wall_ns.push_back(wall);
    trial.prefetched += sample.prefetched;
    trial.prefetches_used += sample.prefetches_used;
  }
  if (--steps_left_ > 0) return;
  if (on_trial_) {
    next_trial();
  } else if (chosen_ != 0 || wait_share_ > kWaitMatters) {
    begin_trial();
  } else {
    steps_left_ = kTrialSteps;  // off, and nothing waits: look again soon
  }
}

void LookaheadGovernor::begin_trial() {
  on_trial_ = true;
  trial_round_ = 0;
  for (Trial& trial : trials_) trial = {};
  current_ = 0;
  steps_left_ = kTrialSteps;
}

void LookaheadGovernor::next_trial() {
  steps_left_ = kTrialSteps;
  if (++current_ < widths_.size()) return;
  current_ = 0;
  if (++trial_round_ < kTrialRounds) return;
  choose();
}

// The fewest prefetches unless more are clearly faster; of counts that are about as fast as the
// fastest, the most that are nearly all used: they are reads that have to be done anyway.
void LookaheadGovernor::choose() {
  for (std::size_t i = 0; i < widths_.size(); ++i) {
    seconds_of_[i] = median(trials_[i].wall_ns) * 1e-9;
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < widths_.size(); ++i) {
    if (seconds_of_[i] * (1 + kWorthwhile) < seconds_of_[best]) best = i;
  }
  for (std::size_t i = best + 1; best > 0 && i < widths_.size(); ++i) {
    const Trial& trial = trials_[i];
    const bool all_used = static_cast<double>(trial.prefetches_used) >=
                          kNearlyAll * static_cast<double>(trial.prefetched);
    if (all_used && seconds_of_[i] < seconds_of_[best] * (1 + kWorthwhile)) best = i;
  }
  exploit_steps_ =
      best == chosen_ ? std::min(2 * exploit_steps_, kMostExploitSteps) : kExploitSteps;
  switches_ += best != chosen_;
  chosen_ = current_ = best;
  on_trial_ = false;
  steps_left_ = exploit_steps_;
}

LookaheadGovernor::Report LookaheadGovernor::report() const {
  const double off = seconds_of_[0], now = seconds_of_[chosen_];
  return {.width = width(),
          .on_trial = on_trial_,
          .gain = now > 0 ? off / now - 1 : 0,
          .precision = precision_,
          .wait_share = wait_share_,
          .switches = switches_};
}

std::string LookaheadGovernor::describe() const {
  const Report r = report();
  if (r.on_trial) return fmt::format("lookahead: trying {} experts per layer", r.width);
  if (r.width > 0) {
    return fmt::format(
        "lookahead: {} experts per layer, {:.0f} % of prefetches used, {:+.0f} % speed", r.width,
        100 * r.precision, 100 * r.gain);
  }
  if (r.wait_share <= kWaitMatters) return "lookahead: off, nothing waits for the drive";
  if (seconds_of_[0] > 0) return "lookahead: off, it did not pay when tried";
  return "lookahead: off so far";
}

bool surely_all_experts(std::int64_t n_rows, int top_k, int n_experts) {
  return n_rows * top_k >= kSurelyAll * n_experts;
}

LookaheadGovernors::LookaheadGovernors(int top_k, int n_experts)
    : top_k_(top_k),
      n_experts_(n_experts),
      governors_{LookaheadGovernor::for_top_k(top_k, FirstWidth::Off)} {
  MOEFLUX_ASSERT(top_k > 0 || n_experts == 0);
  for (std::int64_t n = 2; !is_sure(n); n *= 2) {
    governors_.push_back(LookaheadGovernor::for_top_k(top_k, FirstWidth::Widest));
  }
}

bool LookaheadGovernors::is_sure(std::int64_t n_rows) const {
  return n_rows > 1 && surely_all_experts(n_rows, top_k_, n_experts_);
}

int LookaheadGovernors::width(std::int64_t n_rows) const {
  return is_sure(n_rows) ? governors_[0].widest() : governors_[index_of(n_rows)].width();
}

void LookaheadGovernors::record(std::int64_t n_rows, const StepSample& pass) {
  if (is_sure(n_rows)) return;
  StepSample row = pass;
  row.wall_ns /= static_cast<std::uint64_t>(n_rows);
  row.wait_ns /= static_cast<std::uint64_t>(n_rows);
  last_ = index_of(n_rows);
  governors_[last_].record(row);
}

}  // namespace moeflux
