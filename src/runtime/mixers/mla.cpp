// Latent attention in its absorbed form: the key rows of kv_b are folded into the query and its
// value rows into the output, so the cache holds one latent and one rotary key per token instead of
// keys and values of every head.
#include "runtime/forward.h"

namespace moeflux {

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

  float* q_latent = frame.floats(n * spec.n_heads * rank);
  float* attended = frame.floats(n * spec.n_heads * rank);
  float* values = frame.floats(n * spec.n_heads * spec.d_value);
  const bool split = t.kv_b.empty();
  backend_.head_matmul({.weight = split ? t.embed_q : t.kv_b,
                        .n_heads = spec.n_heads,
                        .head_rows = split ? rank : spec.d_nope + spec.d_value,
                        .row0 = 0,
                        .rows = split ? rank : spec.d_nope,
                        .transpose = !split,
                        .x = q,
                        .x_token_stride = q_dim,
                        .x_head_stride = d_query,
                        .n = n,
                        .y = q_latent,
                        .y_token_stride = spec.n_heads * rank,
                        .y_head_stride = rank});
  for (const Rows& r : rows.sessions) {
    backend_.latent_attention({.spec = &spec,
                               .q_latent = q_latent + r.first * spec.n_heads * rank,
                               .q_rope = q + r.first * q_dim + spec.d_nope,
                               .q_rope_token_stride = q_dim,
                               .q_rope_head_stride = d_query,
                               .kv = std::get<LatentState>(*r.state).kv.view(),
                               .n = r.n,
                               .first_position = r.position,
                               .out = attended + r.first * spec.n_heads * rank});
  }
  backend_.head_matmul({.weight = split ? t.unembed : t.kv_b,
                        .n_heads = spec.n_heads,
                        .head_rows = split ? spec.d_value : spec.d_nope + spec.d_value,
                        .row0 = split ? 0 : spec.d_nope,
                        .rows = spec.d_value,
                        .transpose = false,
                        .x = attended,
                        .x_token_stride = spec.n_heads * rank,
                        .x_head_stride = rank,
                        .n = n,
                        .y = values,
                        .y_token_stride = std::int64_t{spec.n_heads} * spec.d_value,
                        .y_head_stride = spec.d_value});
  backend_.matmul({t.o, values, std::int64_t{spec.n_heads} * spec.d_value, n, rows.out, d});
}

}  // namespace moeflux
