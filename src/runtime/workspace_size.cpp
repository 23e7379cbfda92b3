#include "runtime/workspace_size.h"

#include <algorithm>
#include <initializer_list>

#include "runtime/workspace.h"

namespace moeflux {
namespace {

std::uint64_t sum(std::initializer_list<std::int64_t> sizes) {
  std::uint64_t total = 0;
  for (const std::int64_t size : sizes) total += Workspace::padded(size);
  return total;
}

std::uint64_t mixer_floats(const MixerSpec& mixer, std::int64_t n) {
  if (const auto* s = std::get_if<GatedAttentionSpec>(&mixer)) {
    const std::int64_t q = n * s->n_heads * s->d_head, kv = n * s->n_kv_heads * s->d_head;
    return sum({2 * q, kv, kv, q});
  }
  if (const auto* s = std::get_if<GatedDeltaSpec>(&mixer)) {
    return sum({n * s->conv_dim(), n * s->conv_dim(), n * s->value_dim(), n * s->n_value_heads,
                n * s->n_value_heads, n * s->value_dim()});
  }
  const auto& s = std::get<MlaSpec>(mixer);
  const std::int64_t absorbed = std::min(n, kAbsorbedRows) * s.n_heads * s.kv_rank;
  return sum({n * s.q_rank, n * s.n_heads * (s.d_nope + s.d_rope), n * (s.kv_rank + s.d_rope),
              n * s.n_heads * s.d_value, absorbed, absorbed});
}

// Guessing what a layer will choose, while the one before it computes.
std::uint64_t lookahead_floats(const FfnSpec& ffn, std::int64_t n, std::int64_t d_model) {
  const auto* s = std::get_if<MoeSpec>(&ffn);
  if (s == nullptr) return 0;
  return sum(
      {n * d_model, n * s->n_experts, s->n_experts, s->n_experts, s->n_experts, s->n_experts});
}

std::uint64_t ffn_floats(const FfnSpec& ffn, std::int64_t n, std::int64_t d_model) {
  if (const auto* s = std::get_if<DenseFfnSpec>(&ffn)) return sum({n * s->d_ff});
  const auto& s = std::get<MoeSpec>(ffn);
  const std::int64_t pairs = n * s.top_k;
  return sum({n * s.n_experts, pairs, pairs, n * d_model, n, n * s.d_shared, pairs * s.d_expert,
              pairs * d_model, s.n_experts + 1, s.n_experts, pairs, pairs});
}

}  // namespace

std::uint64_t workspace_floats(const ModelConfig& config, std::int64_t n) {
  const std::int64_t d = config.d_model;
  std::uint64_t layer = 0, lookahead = 0;
  const auto include = [&](const LayerSpec& spec) {
    const std::int64_t slice = std::min(n, mixer_slice(spec.mixer));
    layer = std::max({layer, sum({slice * d, slice * d}) + mixer_floats(spec.mixer, slice),
                      sum({n * d, n * d}) + ffn_floats(spec.ffn, n, d)});
    lookahead = std::max(lookahead, lookahead_floats(spec.ffn, n, d));
  };
  for (const LayerSpec& spec : config.layers) include(spec);
  if (config.mtp) include(*config.mtp);
  const std::uint64_t trunk = sum({n * d, n * d});           // x, final norm
  const std::uint64_t mtp = sum({n * d, 2 * n * d, n * d});  // x, [embedding | hidden], final norm
  return std::max(trunk, mtp) + layer + lookahead;
}

WidestOps widest_ops(const ModelConfig& config, std::int64_t n) {
  WidestOps ops{.d_model = config.d_model};
  const auto input = [&](std::int64_t rows, std::int64_t cols) {
    ops.matmul_values = std::max(ops.matmul_values, rows * cols);
    ops.cols = std::max(ops.cols, cols);
  };
  const auto head = [&](std::int64_t d_query, std::int64_t d_value, std::int64_t d_latent) {
    ops.d_query = std::max(ops.d_query, d_query);
    ops.d_value = std::max(ops.d_value, d_value);
    ops.d_latent = std::max(ops.d_latent, d_latent);
  };
  const auto feed_forward = [&](std::int64_t d_ff) {
    ops.ffn_rows = n;
    ops.d_ff = std::max(ops.d_ff, d_ff);
    ops.cols = std::max(ops.cols, d_ff);
  };
  const auto include = [&](const LayerSpec& layer) {
    const std::int64_t slice = std::min(n, mixer_slice(layer.mixer));
    if (const auto* s = std::get_if<GatedAttentionSpec>(&layer.mixer)) {
      input(slice, std::int64_t{s->n_heads} * s->d_head);
      head(s->d_head, s->d_head, 0);
    } else if (const auto* delta = std::get_if<GatedDeltaSpec>(&layer.mixer)) {
      input(slice, delta->value_dim());
    } else {
      const auto& mla = std::get<MlaSpec>(layer.mixer);
      input(slice, std::max<std::int64_t>(mla.q_rank, std::int64_t{mla.n_heads} * mla.d_value));
      input(slice, mla.kv_rank);
      head(mla.d_nope + mla.d_rope, mla.d_value, mla.kv_rank + mla.d_rope);
    }
    if (const auto* s = std::get_if<DenseFfnSpec>(&layer.ffn)) {
      feed_forward(s->d_ff);
    } else {
      const auto& moe = std::get<MoeSpec>(layer.ffn);
      feed_forward(moe.d_shared);
      ops.expert_rows = std::max(ops.expert_rows, n * (moe.top_k + 1));  // the shared one may join
      ops.d_expert = std::max<std::int64_t>(ops.d_expert, moe.d_expert);
      ops.cols = std::max<std::int64_t>(ops.cols, moe.d_expert);
    }
  };
  input(n, config.d_model);
  for (const LayerSpec& layer : config.layers) include(layer);
  if (config.mtp) {
    include(*config.mtp);
    input(n, 2 * config.d_model);
  }
  return ops;
}

}  // namespace moeflux
