// A LookaheadGovernor for every length of a pass, in steps of a factor of two: what pays for one
// row says nothing about a slice of a prompt. A pass of several rows guesses until trials say
// otherwise: most prompts have too few passes for trials, and the more rows choose, the more
// guesses are used. Where the rows surely need all experts nothing is guessed and nothing tried:
// these are reads that have to be done.
#pragma once

#include <cstdint>
#include <vector>

#include "experts/governor.h"

namespace moeflux {

// Whether the choices of so many rows leave hardly any expert out.
bool surely_all_experts(std::int64_t n_rows, int top_k, int n_experts);

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
