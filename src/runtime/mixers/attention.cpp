#include "runtime/forward.h"

namespace moeflux {

void Forward::mix(const Attention<Resident>& a, const MixerRows& rows) {
  const AttentionSpec& s = a.spec;
  const std::int64_t n = rows.h.rows, d_query = s.query_head();
  Workspace::Frame frame(workspace_);

  const View q = frame.floats(n, s.n_heads * d_query);  // per head query | gate
  const View k = frame.floats(n, s.kv_dim());
  const View v = frame.floats(n, s.kv_dim());
  const MatmulOp projections[] = {product(a.q, rows.h, q), product(a.k, rows.h, k),
                                  product(a.v, rows.h, v)};
  backend_.matmuls(std::span(projections).first(s.values_are_keys ? 2 : 3));

  if (s.has_value_norm) {
    const View& from = s.values_are_keys ? k : v;
    norm(from.reshaped(n * s.n_kv_heads, s.d_head), {}, v.reshaped(n * s.n_kv_heads, s.d_head));
  }
  if (s.qk_norm == QkNorm::PerHead) {
    const View heads = q.reshaped(n * s.n_heads, d_query).col_range(0, s.d_head);
    norm(heads, a.q_norm, heads);
    const View k_heads = k.reshaped(n * s.n_kv_heads, s.d_head);
    norm(k_heads, a.k_norm, k_heads);
  } else if (s.qk_norm == QkNorm::WholeRow) {
    norm(q, a.q_norm, q);
    norm(k, a.k_norm, k);
  }

  if (s.qkv_limit > 0) {
    for (const View& x : {q, k, v}) backend_.clamp({.x = x, .limit = s.qkv_limit});
  }

  const View attended = frame.floats(n, s.q_dim());
  for (const Rows& r : rows.sessions) {
    const auto& cache = std::get<AttentionState>(*r.state);
    const View q_rows = q.row_range(r.first, r.n), k_rows = k.row_range(r.first, r.n);
    if (s.rope.n_rot > 0) {
      backend_.rope({&s.rope, q_rows, s.n_heads, d_query, r.positions});
      backend_.rope({&s.rope, k_rows, s.n_kv_heads, s.d_head, r.positions});
    }
    backend_.store_kv({cache.k.view(), k_rows, r.positions});
    backend_.store_kv({cache.v.view(), v.row_range(r.first, r.n), r.positions});
    backend_.attention({.spec = &s,
                        .q = q_rows,
                        .k = cache.k.view(),
                        .v = cache.v.view(),
                        .sinks = a.sinks,
                        .positions = r.positions,
                        .out = attended.row_range(r.first, r.n)});
  }
  backend_.matmul(product(a.o, attended, rows.out));
}

}  // namespace moeflux
