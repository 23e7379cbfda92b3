#include "runtime/forward.h"

namespace moeflux {

void Forward::mix(const GatedDelta<Resident>& t, const MixerRows& rows) {
  const GatedDeltaSpec& s = t.spec;
  const std::int64_t n = rows.h.rows;
  Workspace::Frame frame(workspace_);

  const View qkv = frame.floats(n, s.conv_dim());
  const View convolved = frame.floats(n, s.conv_dim());
  const View z = frame.floats(n, s.value_dim());
  const View a = frame.floats(n, s.n_value_heads);
  const View b = frame.floats(n, s.n_value_heads);
  const View read_out = frame.floats(n, s.value_dim());
  const MatmulOp projections[] = {{.weight = t.qkv, .x = rows.h, .y = qkv},
                                  {.weight = t.z, .x = rows.h, .y = z},
                                  {.weight = t.a, .x = rows.h, .y = a},
                                  {.weight = t.b, .x = rows.h, .y = b}};
  backend_.matmuls(projections);

  const auto recur = [&](DeltaState& state, std::int64_t first, std::int64_t count) {
    const View input = convolved.row_range(first, count);
    backend_.short_conv({.x = qkv.row_range(first, count),
                         .weight = t.conv.reshaped(s.conv_width, s.conv_dim()),
                         .state = state.conv_view(s),
                         .out = input});
    backend_.gated_delta({.spec = &s,
                          .qkv = input,
                          .z = z.row_range(first, count),
                          .b = b.row_range(first, count),
                          .a = a.row_range(first, count),
                          .a_log = t.a_log,
                          .dt_bias = t.dt_bias,
                          .norm = t.norm,
                          .eps = config_.norm_eps,
                          .state = state.s_view(s),
                          .out = read_out.row_range(first, count)});
  };
  for (const Rows& r : rows.sessions) {
    auto& state = std::get<DeltaState>(*r.state);
    const std::int64_t n_certain = r.n - r.n_drafts;
    if (r.begins && r.keep_before) state.copy_to(r.session->before_pass(layer_index_), backend_);
    if (r.begins && !r.keep_before) r.session->lose_before();
    recur(state, r.first, n_certain);
    for (std::int64_t i = 0; i < r.n_drafts; ++i) {  // each may be the first to be taken back
      state.copy_to(r.session->before_draft(layer_index_, i), backend_);
      recur(state, r.first + n_certain + i, 1);
    }
  }
  backend_.matmul({.weight = t.out, .x = read_out, .y = rows.out});
}

}  // namespace moeflux
