#include "experts/lookahead_governors.h"

#include <bit>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::int64_t kSurelyAll = 8;  // choices per expert

std::size_t index_of(std::int64_t n_rows) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(n_rows)) - 1);
}

}  // namespace

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
