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

}  // namespace moeflux
