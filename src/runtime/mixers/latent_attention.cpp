// Latent attention: the cache holds one latent and one rotary key per token instead of keys and
// values of every head. In its absorbed form the key rows of kv_b are folded into the query and its
// value rows into the output; for long prompts it is cheaper to expand latents (decision 0018).
#include <algorithm>

#include "runtime/forward.h"

namespace moeflux {
namespace {

constexpr std::int64_t kAbsorbedRows = 128;  // taken at a time in the absorbed form

// Some models come with the two parts of kv_b as matrices of their own.
HeadMatrix key_matrix(const LatentAttention<Resident>& t) {
  const MlaSpec& s = t.spec;
  if (t.kv_b.empty()) return {t.embed_q, s.kv_rank, 0, s.kv_rank, false};
  return {t.kv_b, s.d_nope + s.d_value, 0, s.d_nope, true};
}
HeadMatrix value_matrix(const LatentAttention<Resident>& t) {
  const MlaSpec& s = t.spec;
  if (t.kv_b.empty()) return {t.unembed, s.d_value, 0, s.d_value, false};
  return {t.kv_b, s.d_nope + s.d_value, s.d_nope, s.d_value, false};
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

void Forward::mix(const LatentAttention<Resident>& t, const MixerRows& rows) {
  const MlaSpec& s = t.spec;
  const std::int64_t n = rows.h.rows;
  Workspace::Frame frame(workspace_);

  // Queries: per head [nope | rope]. Keys: latent and rotary, of all heads.
  const View q = frame.floats(n, std::int64_t{s.n_heads} * s.d_query());
  const View kv = frame.floats(n, s.d_row());
  const MatmulOp latents{.weight = t.kv_a, .x = rows.h, .y = kv};
  const auto latent_norm = [&](const View& x, const View& weight) {
    backend_.rms_norm({.x = x, .weight = weight, .eps = s.latent_norm_eps, .out = x});
  };
  if (s.q_rank > 0) {
    const View compressed = frame.floats(n, s.q_rank);
    const MatmulOp projections[] = {{.weight = t.q_a, .x = rows.h, .y = compressed}, latents};
    backend_.matmuls(projections);
    latent_norm(compressed, t.q_a_norm);
    backend_.matmul({.weight = t.q, .x = compressed, .y = q});
  } else {
    const MatmulOp projections[] = {{.weight = t.q, .x = rows.h, .y = q}, latents};
    backend_.matmuls(projections);
  }
  latent_norm(kv.col_range(0, s.kv_rank), t.kv_a_norm);
  for (const Rows& r : rows.sessions) {
    const View q_rows = q.row_range(r.first, r.n), kv_rows = kv.row_range(r.first, r.n);
    const std::int64_t d_rotary = q_rows.cols - s.d_nope;  // from the first rotary part on
    backend_.rope(
        {&s.rope, q_rows.col_range(s.d_nope, d_rotary), s.n_heads, s.d_query(), r.positions});
    backend_.rope({&s.rope, kv_rows.col_range(s.kv_rank, s.d_rope), 1, s.d_rope, r.positions});
    backend_.store_kv({std::get<LatentState>(*r.state).kv.view(), kv_rows, r.positions});
  }

  const View values = frame.floats(n, std::int64_t{s.n_heads} * s.d_value);
  std::span<const Rows> left = rows.sessions;
  while (!left.empty()) {
    std::size_t count = 0;
    while (count < left.size() && !expands(s, left[count].prompt_tokens)) ++count;
    if (count > 0) {
      absorb(t, left.first(count), q, values);
    } else {
      const Rows& r = left[count++];
      backend_.expanded_attention({.spec = &s,
                                   .keys = key_matrix(t),
                                   .values = value_matrix(t),
                                   .q = q.row_range(r.first, r.n),
                                   .kv = std::get<LatentState>(*r.state).kv.view(),
                                   .positions = r.positions,
                                   .out = values.row_range(r.first, r.n)});
    }
    left = left.subspan(count);
  }
  backend_.matmul({.weight = t.o, .x = values, .y = rows.out});
}

void Forward::absorb(const LatentAttention<Resident>& t, std::span<const Rows> rows, const View& q,
                     const View& values) {
  const MlaSpec& s = t.spec;
  const std::int64_t wide = std::int64_t{s.n_heads} * s.kv_rank;
  const std::int64_t first = rows.front().first, end = rows.back().first + rows.back().n;
  Workspace::Frame frame(workspace_);
  const std::int64_t most = std::min(end - first, kAbsorbedRows);
  const View q_latent = frame.floats(most, wide);
  const View attended = frame.floats(most, wide);
  for (std::int64_t begin = first; begin < end; begin += kAbsorbedRows) {
    const std::int64_t n = std::min(kAbsorbedRows, end - begin);
    backend_.head_matmul({.matrix = key_matrix(t),
                          .n_heads = s.n_heads,
                          .x = q.row_range(begin, n),
                          .x_head_stride = s.d_query(),
                          .y = q_latent.row_range(0, n),
                          .y_head_stride = s.kv_rank});
    for (const Rows& r : rows) {
      const std::int64_t from = std::max(r.first, begin), to = std::min(r.first + r.n, begin + n);
      if (from >= to) continue;
      backend_.latent_attention({.spec = &s,
                                 .q_latent = q_latent.row_range(from - begin, to - from),
                                 .q = q.row_range(from, to - from),
                                 .kv = std::get<LatentState>(*r.state).kv.view(),
                                 .positions = r.positions.col_range(from - r.first, to - from),
                                 .out = attended.row_range(from - begin, to - from)});
    }
    backend_.head_matmul({.matrix = value_matrix(t),
                          .n_heads = s.n_heads,
                          .x = attended.row_range(0, n),
                          .x_head_stride = s.kv_rank,
                          .y = values.row_range(begin, n),
                          .y_head_stride = s.d_value});
  }
}

}  // namespace moeflux
