// Feed-forwards. The mixture of experts groups (token, slot) pairs by expert, so that each expert
// is fetched and decoded once for all its tokens, computes experts in whatever order they arrive,
// each into rows of its own, and combines those rows in slot order: arrival times cannot change a
// result.
#include <algorithm>

#include "runtime/forward.h"
#include "runtime/router.h"

namespace moeflux {
namespace {

// Pairs (token, slot) sorted by expert: those of the i-th used expert are [begin[i], begin[i + 1]).
struct ExpertGroups {
  std::int32_t* experts;  // used experts, ascending
  std::int32_t* begin;
  std::int32_t* tokens;  // of each pair
  std::int32_t* pairs;   // token * top_k + slot
  int n_used = 0;
};

void group_by_expert(const MoeSpec& spec, const std::int32_t* ids, std::int64_t n,
                     ExpertGroups& groups) {
  const std::int64_t n_pairs = n * spec.top_k;
  std::int32_t* next =
      groups.begin;  // first as a histogram, then as the next free place of each expert
  std::fill_n(next, spec.n_experts + 1, 0);
  for (std::int64_t p = 0; p < n_pairs; ++p) ++next[ids[p] + 1];
  for (int e = 0; e < spec.n_experts; ++e) {
    if (next[e + 1] > 0) groups.experts[groups.n_used++] = e;
    next[e + 1] += next[e];
  }
  for (std::int64_t p = 0; p < n_pairs; ++p) {
    const std::int32_t place = next[ids[p]]++;
    groups.tokens[place] = static_cast<std::int32_t>(p / spec.top_k);
    groups.pairs[place] = static_cast<std::int32_t>(p);
  }
  // next[e] is now the end of expert e: keep those of the used ones, shifted to be begins.
  std::int32_t end_before = 0;
  for (int i = 0; i < groups.n_used; ++i) {
    const std::int32_t end = next[groups.experts[i]];
    groups.begin[i] =
        end_before;  // i <= experts[i], so this never overwrites an end that is still needed
    end_before = end;
  }
  groups.begin[groups.n_used] = end_before;
}

}  // namespace

void Forward::ffn(const DenseFfnSpec& spec, const DenseFfnTensors<Resident>& t, const FfnRows& rows,
                  float* out) {
  const auto [x, h, n] = rows;
  Workspace::Frame frame(workspace_);
  backend_.ffn({.gate = t.gate,
                .up = t.up,
                .down = t.down,
                .x = h,
                .n = n,
                .rows_in = {},
                .rows_out = {},
                .hidden = frame.floats(n * spec.d_ff),
                .y = out});
}

void Forward::route_tokens(const MoeSpec& spec, const float* logits, const float* correction_bias,
                           std::int64_t n, std::int32_t* ids, float* weights) {
  constexpr std::int64_t kWorthSharing = 16;  // tokens
  const std::int64_t n_parts = n < kWorthSharing ? 1 : backend_.n_threads();
  router_scratch_.resize(std::max(router_scratch_.size(), static_cast<std::size_t>(n_parts)));
  const auto route_part = [&](std::int64_t part) {
    for (std::int64_t i = n * part / n_parts; i < n * (part + 1) / n_parts; ++i) {
      route(spec, logits + i * spec.n_experts, correction_bias, ids + i * spec.top_k,
            weights + i * spec.top_k, router_scratch_[static_cast<std::size_t>(part)]);
    }
  };
  if (n_parts == 1) return route_part(0);
  backend_.parallel_for(n_parts, route_part);
}

void Forward::ffn(const MoeSpec& spec, const MoeTensors<Resident>& t, const FfnRows& rows,
                  float* out) {
  const auto [x, h, n] = rows;
  const std::int64_t d = config_.d_model;
  const std::int64_t n_pairs = n * spec.top_k;
  Workspace::Frame frame(workspace_);
  float* logits = frame.floats(n * spec.n_experts);
  std::int32_t* ids = frame.ints(n_pairs);
  float* weights = frame.floats(n_pairs);
  float* shared_gate = frame.floats(n);
  const MatmulOp gates[] = {{t.router, h, d, n, logits, spec.n_experts},
                            {t.shared_gate, h, d, n, shared_gate, 1}};
  backend_.matmuls(std::span(gates).first(spec.shared_is_gated ? 2 : 1));
  route_tokens(spec, logits, t.correction_bias, n, ids, weights);
  if (observer_ != nullptr) observer_->on_route(layer_index_, ids, weights, n, spec.top_k);

  ExpertGroups groups{.experts = frame.ints(spec.n_experts),
                      .begin = frame.ints(spec.n_experts + 1),
                      .tokens = frame.ints(n_pairs),
                      .pairs = frame.ints(n_pairs)};
  group_by_expert(spec, ids, n, groups);
  // Reads of all that are missing start here and go on while the rest computes.
  auto request =
      experts_.request(t.bank, {groups.experts, static_cast<std::size_t>(groups.n_used)});
  look_ahead(x, n);

  // The shared expert and what is in memory already compute while the rest is being read; then each
  // expert as it lands. What is ready at the same time goes in one call.
  float* shared = frame.floats(n * d);
  float* shared_hidden = frame.floats(n * spec.d_shared);
  float* hidden = frame.floats(n_pairs * spec.d_expert);
  float* expert_rows = frame.floats(n_pairs * d);  // one row per (token, slot)
  ffns_.clear();                                   // a pass that failed may have left some
  leases_.clear();
  if (spec.d_shared > 0) {
    ffns_.push_back(
        {t.shared.gate, t.shared.up, t.shared.down, h, n, {}, {}, shared_hidden, shared});
  }
  while (true) {
    while (request.has_ready()) {
      leases_.push_back(*request.next());
      const ExpertView& expert = leases_.back().view();
      const int index = leases_.back().index();
      const std::int32_t begin = groups.begin[index];
      const auto count = static_cast<std::size_t>(groups.begin[index + 1] - begin);
      ffns_.push_back({.gate = expert.gate,
                       .up = expert.up,
                       .down = expert.down,
                       .x = h,
                       .n = static_cast<std::int64_t>(count),
                       .rows_in = {groups.tokens + begin, count},
                       .rows_out = {groups.pairs + begin, count},
                       .hidden = hidden + begin * spec.d_expert,
                       .y = expert_rows});
    }
    if (!ffns_.empty()) backend_.ffns(ffns_);
    ffns_.clear();
    leases_.clear();
    if (!request.wait()) break;
  }
  backend_.combine({.experts = expert_rows,
                    .weights = weights,
                    .shared = spec.d_shared > 0 ? shared : nullptr,
                    .shared_gate = spec.shared_is_gated ? shared_gate : nullptr,
                    .top_k = spec.top_k,
                    .n = n,
                    .d = d,
                    .out = out});
}

}  // namespace moeflux
