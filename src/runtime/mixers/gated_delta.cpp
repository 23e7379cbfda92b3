#include <cstring>

#include "runtime/forward.h"

namespace moeflux {

// All threads copy: one alone does not saturate the memory.
void Forward::keep_state(const DeltaState& from, DeltaState& to) {
  std::memcpy(to.conv.data(), from.conv.data(), from.conv.size());
  const std::int64_t n_parts = backend_.n_threads();
  const auto bytes = static_cast<std::int64_t>(from.s.size());
  backend_.parallel_for(n_parts, [&](std::int64_t part) {
    const std::int64_t begin = bytes * part / n_parts, end = bytes * (part + 1) / n_parts;
    std::memcpy(to.s.data() + begin, from.s.data() + begin, static_cast<std::size_t>(end - begin));
  });
}

void Forward::mix(const GatedDeltaSpec& spec, const GatedDeltaTensors<Resident>& t,
                  const MixerRows& rows) {
  const std::int64_t d = config_.d_model;
  const std::int64_t conv_dim = spec.conv_dim();
  const std::int64_t value_dim = spec.value_dim();
  const std::int64_t n_heads = spec.n_value_heads;
  const std::int64_t n = rows.n;
  Workspace::Frame frame(workspace_);

  float* qkv = frame.floats(n * conv_dim);
  float* convolved = frame.floats(n * conv_dim);
  float* z = frame.floats(n * value_dim);
  float* a = frame.floats(n * n_heads);
  float* b = frame.floats(n * n_heads);
  float* read_out = frame.floats(n * value_dim);
  const MatmulOp projections[] = {{t.qkv, rows.h, d, n, qkv, conv_dim},
                                  {t.z, rows.h, d, n, z, value_dim},
                                  {t.a, rows.h, d, n, a, n_heads},
                                  {t.b, rows.h, d, n, b, n_heads}};
  backend_.matmuls(projections);

  const auto recur = [&](DeltaState& state, std::int64_t first, std::int64_t count) {
    backend_.short_conv({qkv + first * conv_dim, t.conv, state.conv.floats(), conv_dim,
                         spec.conv_width, count, convolved + first * conv_dim});
    backend_.gated_delta({.spec = &spec,
                          .qkv = convolved + first * conv_dim,
                          .z = z + first * value_dim,
                          .b = b + first * n_heads,
                          .a = a + first * n_heads,
                          .a_log = t.a_log,
                          .dt_bias = t.dt_bias,
                          .norm = t.norm,
                          .eps = config_.norm_eps,
                          .state = state.s.floats(),
                          .n = count,
                          .out = read_out + first * value_dim});
  };
  for (const Rows& r : rows.sessions) {
    auto& state = std::get<DeltaState>(*r.state);
    const std::int64_t n_certain = r.n - r.n_drafts;
    if (r.begins && r.keep_before) keep_state(state, r.session->before_pass(layer_index_));
    if (r.begins && !r.keep_before) r.session->lose_before();
    recur(state, r.first, n_certain);
    for (std::int64_t i = 0; i < r.n_drafts; ++i) {  // each may be the first to be taken back
      keep_state(state, r.session->before_draft(layer_index_, i));
      recur(state, r.first + n_certain + i, 1);
    }
  }
  backend_.matmul({t.out, read_out, value_dim, n, rows.out, d});
}

}  // namespace moeflux
