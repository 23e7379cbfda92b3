// Guessing the next layer's experts: its router, applied to the residual stream as it is before
// this layer's experts have added to it. The stream changes little from layer to layer, so most
// guesses are right; what is guessed wrong costs a read and changes nothing else.
#include <algorithm>
#include <numeric>

#include "experts/governor.h"
#include "runtime/forward.h"
#include "runtime/router.h"

namespace moeflux {

void Forward::look_ahead(const float* x, std::int64_t n) {
  const auto next = static_cast<std::size_t>(layer_index_ + 1);
  if (lookahead_ == 0 || next >= config_.layers.size() || experts_.holds_all()) return;
  const auto* spec = std::get_if<MoeSpec>(&config_.layers[next].ffn);
  if (spec == nullptr) return;
  const LayerTensors<Resident>& layer = tensors_.layers[next];
  const auto& tensors = std::get<MoeTensors<Resident>>(layer.ffn);
  const std::int64_t d = config_.d_model;
  if (surely_all_experts(n, spec->top_k, spec->n_experts)) {
    Workspace::Frame frame(workspace_);
    std::int32_t* all = frame.ints(spec->n_experts);
    std::iota(all, all + spec->n_experts, 0);
    return experts_.prefetch(tensors.bank, {all, static_cast<std::size_t>(spec->n_experts)});
  }
  MoeSpec guess = *spec;
  const int n_eligible = spec->n_experts / spec->router.n_groups * spec->router.top_groups;
  guess.top_k = std::min(lookahead_, n_eligible);

  Workspace::Frame frame(workspace_);
  float* h = frame.floats(n * d);
  float* logits = frame.floats(n * spec->n_experts);
  std::int32_t* ids = frame.ints(spec->n_experts);
  float* weights = frame.floats(spec->n_experts);
  std::int32_t* votes = frame.ints(spec->n_experts);
  std::int32_t* experts = frame.ints(spec->n_experts);
  norm(x, layer.ffn_norm, n, h);
  backend_.matmul({tensors.router, h, d, n, logits, spec->n_experts});
  std::fill_n(votes, spec->n_experts, 0);
  std::int32_t n_guessed = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    route(guess, logits + i * spec->n_experts, tensors.correction_bias, ids, weights,
          router_scratch_[0]);
    for (int k = 0; k < guess.top_k; ++k) {
      if (votes[ids[k]]++ == 0) experts[n_guessed++] = ids[k];
    }
  }
  // One token: the order of the router. Many: what most of them want first.
  if (n > 1) {
    std::sort(experts, experts + n_guessed, [&](std::int32_t a, std::int32_t b) {
      return votes[a] != votes[b] ? votes[a] > votes[b] : a < b;
    });
  }
  experts_.prefetch(tensors.bank, {experts, static_cast<std::size_t>(n_guessed)});
}

}  // namespace moeflux
