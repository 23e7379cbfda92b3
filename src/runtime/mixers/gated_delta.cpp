#include "runtime/forward.h"

namespace moeflux {

void Forward::mix(const GatedDeltaSpec& spec, const GatedDeltaTensors<Resident>& t,
                  const Rows& rows, const float* h, float* out) {
  const std::int64_t d = config_.d_model;
  const std::int64_t conv_dim = spec.conv_dim();
  const std::int64_t value_dim = spec.value_dim();
  const std::int64_t n_heads = spec.n_value_heads;
  const std::int64_t n = rows.n;
  auto& state = std::get<DeltaState>(*rows.state);
  Workspace::Frame frame(workspace_);

  float* qkv = frame.floats(n * conv_dim);
  float* convolved = frame.floats(n * conv_dim);
  float* z = frame.floats(n * value_dim);
  float* a = frame.floats(n * n_heads);
  float* b = frame.floats(n * n_heads);
  backend_.matmul({t.qkv, h, d, n, qkv, conv_dim});
  backend_.matmul({t.z, h, d, n, z, value_dim});
  backend_.matmul({t.a, h, d, n, a, n_heads});
  backend_.matmul({t.b, h, d, n, b, n_heads});
  backend_.short_conv({qkv, t.conv, state.conv.floats(), conv_dim, spec.conv_width, n, convolved});

  float* read_out = frame.floats(n * value_dim);
  backend_.gated_delta({.spec = &spec,
                        .qkv = convolved,
                        .z = z,
                        .b = b,
                        .a = a,
                        .a_log = t.a_log,
                        .dt_bias = t.dt_bias,
                        .norm = t.norm,
                        .eps = config_.norm_eps,
                        .state = state.s.floats(),
                        .n = n,
                        .out = read_out});
  backend_.matmul({t.out, read_out, value_dim, n, out, d});
}

}  // namespace moeflux
