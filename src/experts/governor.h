// Decides whether prefetching the next layer's experts pays, and how many of them.
//
// Prefetches fill the time the drive would stand idle, but wrong ones take bandwidth from reads
// that are waited for and evict experts that are needed. Whether they pay depends on the drive, the
// cache and the text, so it is measured: short trials of every prefetch count ("width") in turn,
// then the best for a while, then trials again, less often where they only confirm it. Without
// waiting there is nothing to gain, and nothing is prefetched. Pure objects: they see samples and
// answer with a width.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moeflux {

// One pass, as differences of the streamer's counters.
struct StepSample {
  std::uint64_t wall_ns = 0;
  std::uint64_t wait_ns = 0;
  std::uint64_t misses = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t prefetched = 0;
  std::uint64_t prefetches_used = 0;
};

enum class FirstWidth { Off, Widest };  // until the first trials

class LookaheadGovernor {
 public:
  // Widths it chooses from, the first being 0: off.
  explicit LookaheadGovernor(std::vector<int> widths, FirstWidth first = FirstWidth::Off);
  // For a router that chooses top_k.
  static LookaheadGovernor for_top_k(int top_k, FirstWidth first = FirstWidth::Off);

  int width() const { return widths_[current_]; }
  int widest() const { return widths_.back(); }
  void record(const StepSample& sample);

  struct Report {
    int width = 0;
    bool on_trial = false;       // the width is being tried, not chosen
    double gain = 0;             // time without prefetches over time with the width, less one
    double precision = 0;        // of recent prefetches, 0..1
    double wait_share = 0;       // of the time, recently
    std::uint64_t switches = 0;  // times the choice changed
  };
  Report report() const;
  std::string describe() const;  // one line for a person

 private:
  void begin_trial();
  void next_trial();
  void choose();

  struct Trial {  // of one width, in the current round of trials
    std::vector<double> wall_ns;
    std::uint64_t prefetched = 0;
    std::uint64_t prefetches_used = 0;
  };

  std::vector<int> widths_;
  std::vector<Trial> trials_;       // [width]
  std::vector<double> seconds_of_;  // [width] of the last round; 0: not known
  std::size_t current_ = 0;
  std::size_t chosen_ = 0;
  bool on_trial_ = false;
  int trial_round_ = 0;
  int steps_left_ = 0;
  int exploit_steps_ = 0;  // until the next trials
  double wait_share_ = 0;
  double precision_ = 0;
  std::uint64_t switches_ = 0;
};

// Whether the choices of so many rows leave hardly any expert out.
bool surely_all_experts(std::int64_t n_rows, int top_k, int n_experts);

// A LookaheadGovernor for every length of a pass, in steps of a factor of two: what pays for one
// row says nothing about a slice of a prompt. A pass of several rows prefetches until trials say
// otherwise: most prompts have too few passes for trials, and the more rows choose, the more of the
// prefetched experts are used. Where the rows surely need all experts nothing is tried: these are
// reads that have to be done.
class LookaheadGovernors {
 public:
  LookaheadGovernors(int top_k, int n_experts);

  int width(std::int64_t n_rows) const;
  // A whole pass of n_rows; they are compared by their time per row.
  void record(std::int64_t n_rows, const StepSample& pass);
  // Of passes as long as the last one recorded.
  const LookaheadGovernor& last() const { return governors_[last_]; }

 private:
  bool is_sure(std::int64_t n_rows) const;

  int top_k_, n_experts_;
  std::vector<LookaheadGovernor> governors_;  // [i] of passes of 2^i rows and more
  std::size_t last_ = 0;
};

}  // namespace moeflux
