#include "engine/scheduler/scheduler_pass.h"

#include <algorithm>
#include <numeric>

namespace moeflux {

std::vector<std::int64_t> plan_pass(std::span<const PassJob> jobs, const PassLimits& limits) {
  std::vector<std::size_t> turns(jobs.size());  // served longest ago first
  std::iota(turns.begin(), turns.end(), std::size_t{0});
  std::stable_sort(turns.begin(), turns.end(), [&](std::size_t a, std::size_t b) {
    return jobs[a].last_pass < jobs[b].last_pass;
  });

  const std::int64_t n_decoding =
      std::count_if(jobs.begin(), jobs.end(), [](const PassJob& job) { return job.decodes; });
  const bool prompts_wait = n_decoding < static_cast<std::int64_t>(jobs.size());
  std::int64_t rows_left = limits.max_rows;
  std::vector<std::int64_t> rows(jobs.size());
  if (n_decoding + (prompts_wait ? 1 : 0) > rows_left) {
    for (const std::size_t i : turns) {
      if (rows_left-- == 0) break;
      rows[i] = 1;
    }
    return rows;
  }

  for (std::size_t i = 0; i < jobs.size(); ++i) rows[i] = jobs[i].decodes ? 1 : 0;
  rows_left -= n_decoding;
  if (n_decoding > 0) rows_left = std::min(rows_left, std::max<std::int64_t>(limits.slice_rows, 1));
  for (const std::size_t i : turns) {
    if (jobs[i].decodes) continue;
    rows[i] = std::min(jobs[i].n_pending, rows_left);
    rows_left -= rows[i];
  }
  return rows;
}

}  // namespace moeflux
