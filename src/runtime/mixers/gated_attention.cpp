#include "runtime/forward.h"

namespace moeflux {

void Forward::mix(const GatedAttentionSpec& spec, const GatedAttentionTensors<Resident>& t,
                  const Rows& rows, const float* h, float* out) {
  const std::int64_t d = config_.d_model;
  const std::int64_t q_dim = std::int64_t{spec.n_heads} * spec.d_head;
  const std::int64_t kv_dim = std::int64_t{spec.n_kv_heads} * spec.d_head;
  const std::int64_t n = rows.n;
  auto& cache = std::get<AttentionState>(*rows.state);
  Workspace::Frame frame(workspace_);

  float* q = frame.floats(n * 2 * q_dim);  // [n, n_heads, query | gate]
  float* k = frame.floats(n * kv_dim);
  float* v = frame.floats(n * kv_dim);
  backend_.matmul({t.q, h, d, n, q, 2 * q_dim});
  backend_.matmul({t.k, h, d, n, k, kv_dim});
  backend_.matmul({t.v, h, d, n, v, kv_dim});

  const std::int64_t head = spec.d_head;
  backend_.rms_norm({q, 2 * head, t.q_norm, config_.norm_eps, n * spec.n_heads, head, q, 2 * head});
  backend_.rms_norm({k, head, t.k_norm, config_.norm_eps, n * spec.n_kv_heads, head, k, head});
  backend_.rope({&spec.rope, q, 2 * q_dim, 2 * head, spec.n_heads, n, rows.position});
  backend_.rope({&spec.rope, k, kv_dim, head, spec.n_kv_heads, n, rows.position});

  backend_.store_kv({cache.k.view(), k, kv_dim, n, rows.position});
  backend_.store_kv({cache.v.view(), v, kv_dim, n, rows.position});

  float* attended = frame.floats(n * q_dim);
  backend_.attention({.spec = &spec,
                      .q = q,
                      .gate = q + head,
                      .token_stride = 2 * q_dim,
                      .head_stride = 2 * head,
                      .k = cache.k.view(),
                      .v = cache.v.view(),
                      .n = n,
                      .first_position = rows.position,
                      .out = attended});
  backend_.matmul({t.o, attended, q_dim, n, out, d});
}

}  // namespace moeflux
