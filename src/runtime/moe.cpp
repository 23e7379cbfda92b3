// Feed-forwards. The mixture of experts groups (token, slot) pairs by expert, so that each expert
// is fetched and decoded once for all its tokens, computes experts in whatever order they arrive,
// each into rows of its own, and combines those rows in slot order: arrival times cannot change a
// result.
#include <algorithm>

#include "runtime/forward.h"

namespace moeflux {
namespace {

void group_by_expert(const MoeSpec& spec, std::span<const std::int32_t> ids, ExpertGroups& groups) {
  auto& [experts, begin, lists] = groups;
  const std::size_t n_pairs = ids.size();
  const auto top_k = static_cast<std::size_t>(spec.top_k);
  lists.resize(2 * n_pairs);
  begin.assign(static_cast<std::size_t>(spec.n_experts) + 1, 0);
  for (const std::int32_t id : ids) ++begin[static_cast<std::size_t>(id) + 1];
  experts.clear();
  for (int e = 0; e < spec.n_experts; ++e) {
    const auto at = static_cast<std::size_t>(e);
    if (begin[at + 1] > 0) experts.push_back(e);
    begin[at + 1] += begin[at];
  }
  for (std::size_t p = 0; p < n_pairs; ++p) {  // begin[e] becomes the end of expert e
    const auto place = static_cast<std::size_t>(begin[static_cast<std::size_t>(ids[p])]++);
    lists[place] = static_cast<std::int32_t>(p / top_k);
    lists[n_pairs + place] = static_cast<std::int32_t>(p);
  }
  // Keep the ends of used experts, shifted to be begins. i <= experts[i], so this never overwrites
  // an end that is still needed.
  std::int32_t end_before = 0;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const std::int32_t end = begin[static_cast<std::size_t>(experts[i])];
    begin[i] = end_before;
    end_before = end;
  }
  begin[experts.size()] = end_before;
}

FfnOp feed_forward(const FeedForward<Resident>& t, const View& h, const View& hidden,
                   const View& y) {
  return {.gate = t.gate.weight,
          .up = t.up.weight,
          .down = t.down.weight,
          .gate_bias = t.gate.bias,
          .up_bias = t.up.bias,
          .down_bias = t.down.bias,
          .activation = t.spec.activation,
          .x = h,
          .hidden = hidden,
          .y = y};
}

}  // namespace

void Forward::feed(const FeedForward<Resident>& t, const FfnRows& rows) {
  Workspace::Frame frame(workspace_);
  backend_.ffn(feed_forward(t, rows.h, frame.floats(rows.h.rows, t.spec.d_ff), rows.out));
}

void Forward::feed(const Moe<Resident>& moe, const FfnRows& rows) {
  const MoeSpec& s = moe.spec;
  const std::int64_t n = rows.h.rows, d = rows.h.cols, n_pairs = n * s.top_k;
  Workspace::Frame frame(workspace_);
  const View logits = frame.floats(n, s.n_experts);
  const View ids = frame.ints(n, s.top_k);
  const View weights = frame.floats(n, s.top_k);
  const View shared_gate = frame.floats(n, 1);
  const MatmulOp gates[] = {product(moe.router, rows.h, logits),
                            {.weight = moe.shared_gate, .x = rows.h, .y = shared_gate}};
  backend_.matmuls(std::span(gates).first(s.shared_is_gated ? 2 : 1));
  backend_.route({.router = &s.router,
                  .logits = logits,
                  .correction_bias = moe.correction_bias,
                  .ids = ids,
                  .weights = weights});

  const View lists = frame.ints(2, n_pairs);
  const View shared = frame.floats(n, d);
  const View shared_hidden = frame.floats(n, s.d_shared);
  const View hidden = frame.floats(n_pairs, s.d_expert);
  const View expert_rows = frame.floats(n_pairs, d);  // one row per (token, slot)
  ffns_.clear();                                      // a pass that failed may have left some
  if (s.d_shared > 0) ffns_.push_back(feed_forward(moe.shared, rows.h, shared_hidden, shared));
  const auto expert_op = [&](const ExpertView& expert, int index, std::int64_t first,
                             std::int64_t count) {
    const auto bias = [&](const View& table) {
      return table.empty()
                 ? table
                 : table.reshaped(s.n_experts, table.cols / s.n_experts).row_range(index, 1);
    };
    return FfnOp{.gate = expert.gate,
                 .up = expert.up,
                 .down = expert.down,
                 .gate_bias = bias(moe.gate_bias),
                 .up_bias = bias(moe.up_bias),
                 .down_bias = bias(moe.down_bias),
                 .activation = s.activation,
                 .x = rows.h,
                 .rows_in = lists.row_range(0, 1).col_range(first, count),
                 .rows_out = lists.row_range(1, 1).col_range(first, count),
                 .hidden = hidden.row_range(first, count),
                 .y = expert_rows};
  };
  if (is_counted()) {
    const Weight wide{.rows = s.d_expert, .cols = d, .data = 0};
    const Weight narrow{.rows = d, .cols = s.d_expert, .data = 0};
    ffns_.push_back(expert_op({wide, wide, narrow}, 0, 0, n_pairs));
    backend_.ffns(ffns_);
    look_ahead(rows.x);
    return;
  }

  ids_.resize(static_cast<std::size_t>(n_pairs));
  download(ids, ids_.data());
  backend_.wait_for_all();
  observe_route(weights, s.top_k);
  group_by_expert(s, ids_, groups_);
  backend_.upload(std::as_bytes(std::span(groups_.lists)), lists.bytes());
  // Reads of all that are missing start here and go on while the rest computes.
  auto request = experts_->request(moe.bank, groups_.experts);
  look_ahead(rows.x);

  // The shared expert and what is in memory already compute while the rest is being read; then each
  // expert as it lands. What is ready at the same time goes in one call.
  leases_.clear();
  while (true) {
    while (request.has_ready()) {
      leases_.push_back(*request.next());
      const auto index = static_cast<std::size_t>(leases_.back().index());
      const std::int32_t first = groups_.begin[index];
      ffns_.push_back(expert_op(leases_.back().view(), groups_.experts[index], first,
                                groups_.begin[index + 1] - first));
    }
    if (!ffns_.empty()) backend_.ffns(ffns_);
    ffns_.clear();
    leases_.clear();
    if (!request.wait()) break;
  }
  backend_.combine({.experts = expert_rows,
                    .weights = weights,
                    .shared = s.d_shared > 0 ? shared : View{},
                    .shared_gate = s.shared_is_gated ? shared_gate : View{},
                    .out = rows.out});
}

void Forward::observe_route(const View& weights, int top_k) {
  if (observer_ == nullptr) return;
  observed_.resize(static_cast<std::size_t>(weights.size()));
  download(weights, observed_.data());
  backend_.wait_for_all();
  observer_->on_route(layer_index_, ids_.data(), observed_.data(), weights.rows, top_k);
}

}  // namespace moeflux
