#include "runtime/forward.h"

namespace moeflux {

void Forward::mix(const GatedAttentionSpec& spec, const GatedAttentionTensors<Resident>& t,
                  const MixerRows& rows) {
  const std::int64_t d = config_.d_model;
  const std::int64_t q_dim = std::int64_t{spec.n_heads} * spec.d_head;
  const std::int64_t kv_dim = std::int64_t{spec.n_kv_heads} * spec.d_head;
  const std::int64_t n = rows.n;
  Workspace::Frame frame(workspace_);

  float* q = frame.floats(n * 2 * q_dim);  // [n, n_heads, query | gate]
  float* k = frame.floats(n * kv_dim);
  float* v = frame.floats(n * kv_dim);
  const MatmulOp projections[] = {{t.q, rows.h, d, n, q, 2 * q_dim},
                                  {t.k, rows.h, d, n, k, kv_dim},
                                  {t.v, rows.h, d, n, v, kv_dim}};
  backend_.matmuls(projections);

  const std::int64_t head = spec.d_head;
  backend_.rms_norm({q, 2 * head, t.q_norm, config_.norm_eps, n * spec.n_heads, head, q, 2 * head});
  backend_.rms_norm({k, head, t.k_norm, config_.norm_eps, n * spec.n_kv_heads, head, k, head});

  float* attended = frame.floats(n * q_dim);
  for (const Rows& r : rows.sessions) {
    auto& cache = std::get<AttentionState>(*r.state);
    float* q_rows = q + r.first * 2 * q_dim;
    float* k_rows = k + r.first * kv_dim;
    backend_.rope({&spec.rope, q_rows, 2 * q_dim, 2 * head, spec.n_heads, r.n, r.position});
    backend_.rope({&spec.rope, k_rows, kv_dim, head, spec.n_kv_heads, r.n, r.position});
    backend_.store_kv({cache.k.view(), k_rows, kv_dim, r.n, r.position});
    backend_.store_kv({cache.v.view(), v + r.first * kv_dim, kv_dim, r.n, r.position});
    backend_.attention({.spec = &spec,
                        .q = q_rows,
                        .gate = q_rows + head,
                        .token_stride = 2 * q_dim,
                        .head_stride = 2 * head,
                        .k = cache.k.view(),
                        .v = cache.v.view(),
                        .n = r.n,
                        .first_position = r.position,
                        .out = attended + r.first * q_dim});
  }
  backend_.matmul({t.o, attended, q_dim, n, rows.out, d});
}

}  // namespace moeflux
