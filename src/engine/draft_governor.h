// Decides how many tokens to draft ahead, if any.
//
// A drafted token that turns out right saves a pass; a wrong one has made a pass longer, and where
// experts come from the drive it has had its own experts read. Which of the two weighs more depends
// on the text, the cache and the drive, so it is measured: short trials of every depth in turn,
// then the one with the least time per token for a while, then trials again. A pure object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moeflux {

class DraftGovernor {
 public:
  // max_depth 0: never drafts. `doubtful`: drafts will probably not pay (experts come from the
  // drive), so the first trials come later and a short answer sees none.
  explicit DraftGovernor(int max_depth = 0, bool doubtful = false);

  int depth() const { return current_; }
  // One pass at the present depth: what it gained and took, drafting included.
  void record(std::int64_t n_tokens, double seconds);

  struct Report {
    int depth = 0;
    bool on_trial = false;
    double gain = 0;  // time per token without drafts over that with, less one; of the last trials
    std::uint64_t switches = 0;
  };
  Report report() const;
  std::string describe() const;  // one line for a person

 private:
  void choose();

  struct Sum {
    double seconds = 0;
    std::int64_t tokens = 0;
    double per_token() const { return tokens > 0 ? seconds / static_cast<double>(tokens) : 0; }
  };
  std::vector<Sum> trials_;        // [depth] of the current round of trials
  std::vector<double> per_token_;  // [depth] of the last round; 0: not known
  int current_ = 0, chosen_ = 0;
  int round_ = 0;
  bool on_trial_;
  std::int64_t steps_left_;
  std::uint64_t switches_ = 0;
};

}  // namespace moeflux
