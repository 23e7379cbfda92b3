// Prefetching the next layer's experts: its router, applied to the residual stream as it is before
// this layer's experts have added to it. The stream changes little from layer to layer, so most of
// them will be asked for; a wrong one costs a read and changes nothing else.
#include <algorithm>
#include <numeric>

#include "experts/governor.h"
#include "runtime/forward.h"

namespace moeflux {

void Forward::look_ahead(const View& x) {
  const auto next = static_cast<std::size_t>(layer_index_ + 1);
  if (lookahead_ == 0 || next >= tensors_.layers.size()) return;
  if (!is_counted() && (experts_->holds_all() || experts_->is_driven_by_device())) return;
  const Layer<Resident>& layer = tensors_.layers[next];
  const auto* moe = std::get_if<Moe<Resident>>(&layer.ffn);
  if (moe == nullptr) return;
  const MoeSpec& s = moe->spec;
  if (surely_all_experts(x.rows, s.top_k, s.n_experts)) {
    if (is_counted()) return;
    list_.resize(static_cast<std::size_t>(s.n_experts));
    std::iota(list_.begin(), list_.end(), 0);
    return experts_->prefetch(moe->bank, list_);
  }

  const int n_eligible = s.n_experts / s.router.n_groups * s.router.top_groups;
  const int count = std::min(lookahead_, n_eligible);
  Workspace::Frame frame(workspace_);
  const View h = frame.floats(x.rows, x.cols);
  const View logits = frame.floats(x.rows, s.n_experts);
  const View ids = frame.ints(x.rows, count);
  const View weights = frame.floats(x.rows, count);
  norm(x, s.router.has_norm ? moe->router_norm : layer.ffn_norm, h);
  backend_.matmul(product(moe->router, h, logits));
  backend_.route({.router = &s.router,
                  .logits = logits,
                  .correction_bias = moe->correction_bias,
                  .ids = ids,
                  .weights = weights});
  if (is_counted()) return;
  lookahead_ids_.resize(static_cast<std::size_t>(ids.size()));
  download(ids, lookahead_ids_.data());
  backend_.wait_for_all();
  votes_.assign(static_cast<std::size_t>(s.n_experts), 0);
  list_.clear();
  for (const std::int32_t id : lookahead_ids_) {
    if (votes_[static_cast<std::size_t>(id)]++ == 0) list_.push_back(id);
  }
  // One token: the order of the router. Many: what most of them want first.
  if (x.rows > 1) {
    const auto votes = [&](std::int32_t id) { return votes_[static_cast<std::size_t>(id)]; };
    std::sort(list_.begin(), list_.end(), [&](std::int32_t a, std::int32_t b) {
      return votes(a) != votes(b) ? votes(a) > votes(b) : a < b;
    });
  }
  experts_->prefetch(moe->bank, list_);
}

}  // namespace moeflux
