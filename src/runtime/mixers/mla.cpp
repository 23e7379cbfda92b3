// Latent attention: the cache holds one latent and one rotary key per token instead of keys and
// values of every head. In its absorbed form the key rows of kv_b are folded into the query and its
// value rows into the output; for long prompts it is cheaper to expand latents (decision 0018).
#include <algorithm>

#include "runtime/forward.h"
#include "runtime/workspace_size.h"

namespace moeflux {
namespace {

// Some models come with the two parts of kv_b as matrices of their own.
HeadMatrix key_matrix(const MlaSpec& spec, const MlaTensors<Resident>& t) {
  if (t.kv_b.empty()) return {t.embed_q, spec.kv_rank, 0, spec.kv_rank, false};
  return {t.kv_b, spec.d_nope + spec.d_value, 0, spec.d_nope, true};
}
HeadMatrix value_matrix(const MlaSpec& spec, const MlaTensors<Resident>& t) {
  if (t.kv_b.empty()) return {t.unembed, spec.d_value, 0, spec.d_value, false};
  return {t.kv_b, spec.d_nope + spec.d_value, spec.d_nope, spec.d_value, false};
}

}  // namespace

// Per head, absorbed: 2 kv_rank + d_rope multiplications for a query and a key. Expanded: d_nope +
// d_rope + d_value, and kv_rank (d_nope + d_value) for a key, whatever the number of queries.
bool Forward::expands(const MlaSpec& spec, std::int64_t prompt_tokens) {
  constexpr std::int64_t kFewest = 256;
  const std::int64_t d = spec.d_nope + spec.d_value;
  const std::int64_t saved = 2 * spec.kv_rank - d;  // for a query and a key
  return prompt_tokens >= kFewest && saved * prompt_tokens >= spec.kv_rank * d;
}

void Forward::mix(const MlaSpec& spec, const MlaTensors<Resident>& t, const MixerRows& rows) {
  const std::int64_t d = config_.d_model;
  const std::int64_t d_query = spec.d_nope + spec.d_rope;  // per head
  const std::int64_t q_dim = spec.n_heads * d_query;
  const std::int64_t rank = spec.kv_rank;
  const std::int64_t kv_dim = rank + spec.d_rope;
  const std::int64_t n = rows.n;
  Workspace::Frame frame(workspace_);

  // Queries: per head [nope | rope]. Keys: latent and rotary, of all heads.
  float* q = frame.floats(n * q_dim);
  float* kv = frame.floats(n * kv_dim);
  const MatmulOp latents{t.kv_a, rows.h, d, n, kv, kv_dim};
  if (spec.q_rank > 0) {
    float* compressed = frame.floats(n * spec.q_rank);
    const MatmulOp projections[] = {{t.q_a, rows.h, d, n, compressed, spec.q_rank}, latents};
    backend_.matmuls(projections);
    backend_.rms_norm({compressed, spec.q_rank, t.q_a_norm, spec.latent_norm_eps, n, spec.q_rank,
                       compressed, spec.q_rank});
    backend_.matmul({t.q, compressed, spec.q_rank, n, q, q_dim});
  } else {
    const MatmulOp projections[] = {{t.q, rows.h, d, n, q, q_dim}, latents};
    backend_.matmuls(projections);
  }
  backend_.rms_norm({kv, kv_dim, t.kv_a_norm, spec.latent_norm_eps, n, rank, kv, kv_dim});
  for (const Rows& r : rows.sessions) {
    float* q_rope = q + r.first * q_dim + spec.d_nope;
    float* kv_rows = kv + r.first * kv_dim;
    backend_.rope({&spec.rope, q_rope, q_dim, d_query, spec.n_heads, r.n, r.position});
    backend_.rope({&spec.rope, kv_rows + rank, kv_dim, spec.d_rope, 1, r.n, r.position});
    backend_.store_kv(
        {std::get<LatentState>(*r.state).kv.view(), kv_rows, kv_dim, r.n, r.position});
  }

  float* values = frame.floats(n * spec.n_heads * spec.d_value);
  std::span<const Rows> left = rows.sessions;
  while (!left.empty()) {
    std::size_t count = 0;
    while (count < left.size() && !expands(spec, left[count].prompt_tokens)) ++count;
    if (count > 0) {
      absorb(spec, t, left.first(count), q, values);
    } else {
      expand(spec, t, left[count++], q, values);
    }
    left = left.subspan(count);
  }
  backend_.matmul({t.o, values, std::int64_t{spec.n_heads} * spec.d_value, n, rows.out, d});
}

void Forward::expand(const MlaSpec& spec, const MlaTensors<Resident>& t, const Rows& r,
                     const float* q, float* values) {
  const std::int64_t d_query = spec.d_nope + spec.d_rope;
  const std::int64_t q_dim = spec.n_heads * d_query;
  backend_.expanded_attention({.spec = &spec,
                               .keys = key_matrix(spec, t),
                               .values = value_matrix(spec, t),
                               .q = q + r.first * q_dim,
                               .token_stride = q_dim,
                               .head_stride = d_query,
                               .kv = std::get<LatentState>(*r.state).kv.view(),
                               .n = r.n,
                               .first_position = r.position,
                               .out = values + r.first * spec.n_heads * spec.d_value});
}

void Forward::absorb(const MlaSpec& spec, const MlaTensors<Resident>& t, std::span<const Rows> rows,
                     const float* q, float* values) {
  const std::int64_t d_query = spec.d_nope + spec.d_rope;
  const std::int64_t q_dim = spec.n_heads * d_query;
  const std::int64_t wide = std::int64_t{spec.n_heads} * spec.kv_rank;
  const std::int64_t narrow = std::int64_t{spec.n_heads} * spec.d_value;
  const std::int64_t first = rows.front().first, end = rows.back().first + rows.back().n;
  Workspace::Frame frame(workspace_);
  const std::int64_t most = std::min(end - first, kAbsorbedRows);
  float* q_latent = frame.floats(most * wide);
  float* attended = frame.floats(most * wide);
  for (std::int64_t begin = first; begin < end; begin += kAbsorbedRows) {
    const std::int64_t n = std::min(kAbsorbedRows, end - begin);
    backend_.head_matmul({.matrix = key_matrix(spec, t),
                          .n_heads = spec.n_heads,
                          .x = q + begin * q_dim,
                          .x_token_stride = q_dim,
                          .x_head_stride = d_query,
                          .n = n,
                          .y = q_latent,
                          .y_token_stride = wide,
                          .y_head_stride = spec.kv_rank});
    for (const Rows& r : rows) {
      const std::int64_t from = std::max(r.first, begin), to = std::min(r.first + r.n, begin + n);
      if (from >= to) continue;
      backend_.latent_attention({.spec = &spec,
                                 .q_latent = q_latent + (from - begin) * wide,
                                 .q_rope = q + from * q_dim + spec.d_nope,
                                 .q_rope_token_stride = q_dim,
                                 .q_rope_head_stride = d_query,
                                 .kv = std::get<LatentState>(*r.state).kv.view(),
                                 .n = to - from,
                                 .first_position = r.position + (from - r.first),
                                 .out = attended + (from - begin) * wide});
    }
    backend_.head_matmul({.matrix = value_matrix(spec, t),
                          .n_heads = spec.n_heads,
                          .x = attended,
                          .x_token_stride = wide,
                          .x_head_stride = spec.kv_rank,
                          .n = n,
                          .y = values + begin * narrow,
                          .y_token_stride = narrow,
                          .y_head_stride = spec.d_value});
  }
}

}  // namespace moeflux
