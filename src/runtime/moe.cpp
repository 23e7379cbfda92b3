// Feed-forwards. The mixture of experts groups (token, slot) pairs by expert, so that each expert
// is fetched and decoded once for all its tokens, computes experts in whatever order they arrive,
// each into rows of its own, and combines those rows in slot order: arrival times cannot change a
// result.
#include <algorithm>
#include <utility>

#include "base/error.h"
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

// A table of biases as one row per expert.
View by_expert(const MoeSpec& spec, const View& table) {
  return table.empty() ? table : table.reshaped(spec.n_experts, table.cols / spec.n_experts);
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
  const View weights = frame.floats(n, s.top_k);
  const View shared_gate = frame.floats(n, 1);
  const View shared = frame.floats(n, d);
  const View shared_hidden = frame.floats(n, s.d_shared);
  const RoutedRows routed{.x = rows.x,
                          .h = s.has_part_norms ? frame.floats(n, d) : rows.h,
                          .ids = frame.ints(n, s.top_k),
                          .lists = frame.ints(2, n_pairs),
                          .hidden = frame.floats(n_pairs, s.d_expert),
                          .out = frame.floats(n_pairs, d)};
  if (s.has_part_norms) norm(rows.x, moe.expert_norm, routed.h);
  const View router_input = s.router.has_norm ? rows.out : rows.h;
  if (s.router.has_norm) norm(rows.x, moe.router_norm, router_input);
  const MatmulOp gates[] = {product(moe.router, router_input, logits),
                            {.weight = moe.shared_gate, .x = rows.h, .y = shared_gate}};
  backend_.matmuls(std::span(gates).first(s.shared_is_gated ? 2 : 1));
  backend_.route({.router = &s.router,
                  .logits = logits,
                  .correction_bias = moe.correction_bias,
                  .expert_scales = moe.expert_scales,
                  .ids = routed.ids,
                  .weights = weights});
  observe_route(routed.ids, weights);

  ffns_.clear();  // a pass that failed may have left some
  if (s.d_shared > 0) ffns_.push_back(feed_forward(moe.shared, rows.h, shared_hidden, shared));
  if (is_counted()) {
    count_experts(moe, routed);
  } else if (experts_->is_driven_by_device()) {
    run_experts_on_device(moe, routed);
  } else {
    run_experts_from_host(moe, routed);
  }
  const bool is_sum = s.d_shared > 0 && !s.has_part_norms;
  backend_.combine({.experts = routed.out,
                    .weights = weights,
                    .shared = is_sum ? shared : View{},
                    .shared_gate = s.shared_is_gated ? shared_gate : View{},
                    .out = rows.out});
  if (!s.has_part_norms) return;
  norm(rows.out, moe.expert_post_norm, rows.out);
  norm(shared, moe.shared_post_norm, shared);
  backend_.add({.x = shared, .y = rows.out});
}

namespace {

// Pairs [first, first + count) of the lists, which have chosen this expert.
FfnOp expert_op(const Moe<Resident>& moe, const ExpertView& matrices, int expert,
                const Forward::RoutedRows& rows, std::int64_t first, std::int64_t count) {
  const auto bias = [&](const View& table) {
    return table.empty() ? table : by_expert(moe.spec, table).row_range(expert, 1);
  };
  return {.gate = matrices.gate,
          .up = matrices.up,
          .down = matrices.down,
          .gate_bias = bias(moe.gate_bias),
          .up_bias = bias(moe.up_bias),
          .down_bias = bias(moe.down_bias),
          .activation = moe.spec.activation,
          .x = rows.h,
          .rows_in = rows.lists.row_range(0, 1).col_range(first, count),
          .rows_out = rows.lists.row_range(1, 1).col_range(first, count),
          .hidden = rows.hidden.row_range(first, count),
          .y = rows.out};
}

}  // namespace

// The host asks the streamer and computes as experts land.
void Forward::run_experts_from_host(const Moe<Resident>& moe, const RoutedRows& rows) {
  ids_.resize(static_cast<std::size_t>(rows.ids.size()));
  download(rows.ids, ids_.data());
  backend_.wait_for_all();
  group_by_expert(moe.spec, ids_, groups_);
  backend_.upload(std::as_bytes(std::span(groups_.lists)), rows.lists.bytes());
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
      ffns_.push_back(expert_op(moe, leases_.back().view(), groups_.experts[index], rows, first,
                                groups_.begin[index + 1] - first));
    }
    if (!ffns_.empty()) backend_.ffns(ffns_);
    ffns_.clear();
    leases_.clear();
    if (!request.wait()) break;
  }
}

// The device looks its experts up and asks the host, in poll, for what is missing.
void Forward::run_experts_on_device(const Moe<Resident>& moe, const RoutedRows& rows) {
  if (!ffns_.empty()) backend_.ffns(ffns_);
  backend_.experts({.spec = &moe.spec,
                    .bank = moe.bank,
                    .h = rows.h,
                    .ids = rows.ids,
                    .table = experts_->table(moe.bank),
                    .mailbox = experts_->mailbox(),
                    .gate_bias = by_expert(moe.spec, moe.gate_bias),
                    .up_bias = by_expert(moe.spec, moe.up_bias),
                    .down_bias = by_expert(moe.spec, moe.down_bias),
                    .hidden = rows.hidden,
                    .out = rows.out});
  DeviceUse& use = device_uses_.emplace_back();
  use.bank = moe.bank;
  use.ids.resize(static_cast<std::size_t>(rows.ids.size()));
  download(rows.ids, use.ids.data());
}

void Forward::end_device_experts() {
  if (is_counted() || !experts_->is_driven_by_device()) return;
  backend_.wait_for_all();
  const std::vector<DeviceUse> uses = std::exchange(device_uses_, {});
  experts_->rethrow_failure();
  for (const DeviceUse& use : uses) experts_->note_uses(use.bank, use.ids);
}

void Forward::abandon_operations() {
  backend_.wait_for_all();
  device_uses_.clear();
  try {
    if (!is_counted()) experts_->rethrow_failure();
  } catch (const Error&) {  // the first one is what the pass failed with
  }
}

// Which experts are in one call is a matter of when they arrive: at most all rows.
void Forward::count_experts(const Moe<Resident>& moe, const RoutedRows& rows) {
  const Weight wide{.rows = moe.spec.d_expert, .cols = rows.h.cols, .data = 0};
  const Weight narrow{.rows = rows.h.cols, .cols = moe.spec.d_expert, .data = 0};
  ffns_.push_back(expert_op(moe, {wide, wide, narrow}, 0, rows, 0, rows.hidden.rows));
  backend_.ffns(ffns_);
  look_ahead(rows.x);
}

void Forward::observe_route(const View& ids, const View& weights) {
  if (observer_ == nullptr) return;
  ids_.resize(static_cast<std::size_t>(ids.size()));
  observed_.resize(static_cast<std::size_t>(weights.size()));
  download(ids, ids_.data());
  download(weights, observed_.data());
  backend_.wait_for_all();
  observer_->on_route(layer_index_, ids_.data(), observed_.data(), ids.rows,
                      static_cast<int>(ids.cols));
}

}  // namespace moeflux
