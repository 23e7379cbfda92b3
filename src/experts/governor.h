// Decides whether guessing the next layer's experts pays, and how many to guess.
//
// Guesses fill the time the disk would stand idle, but wrong ones take bandwidth from reads that
// are waited for and drive out experts that are needed. Whether they pay depends on the disk, the
// cache and the text, so it is measured: short trials of every width in turn, then the best for a
// while, then trials again, less often where they only confirm it. Without waiting there is nothing
// to gain, and nothing is guessed.
// A pure object: it sees samples and answers with a width.
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
  std::uint64_t guessed = 0;
  std::uint64_t guesses_used = 0;
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
    double gain = 0;             // time without guesses over time with the width, less one
    double precision = 0;        // of recent guesses, 0..1
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
    std::uint64_t guessed = 0;
    std::uint64_t guesses_used = 0;
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

}  // namespace moeflux
