// Which rows the next pass has: the policy of the scheduler, as a pure function.
//
// Every job that decodes has its row in every pass. Prompts share what is left: the one served
// longest ago first, the whole slice if it needs it, the next one the rest. While somebody decodes,
// a slice is bounded, so a long prompt delays the others' next token by a bounded amount; alone,
// prompts get all rows. A batch too small for one row per job serves the jobs in turn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moeflux {

struct PassJob {
  std::int64_t n_pending;   // rows it could use now: tokens its session has not seen
  bool decodes;             // n_pending is 1, and another row follows from it
  std::uint64_t last_pass;  // that served it; at first, the last one before it came
};

struct PassLimits {
  std::int64_t max_rows;    // of a pass
  std::int64_t slice_rows;  // of prompts, while others decode
};

// Rows of each job, in the order given; equals are served in that order. Some job gets a row unless
// there is none.
std::vector<std::int64_t> plan_pass(std::span<const PassJob> jobs, const PassLimits& limits);

}  // namespace moeflux
