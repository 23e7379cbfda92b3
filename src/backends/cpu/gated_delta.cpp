// The linear-attention layer: short convolution and gated delta rule, both in their recurrent form.
#include <algorithm>
#include <cmath>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/delta_step.h"

namespace moeflux::cpu {
namespace {

constexpr float kL2Eps = 1e-6f;  // fixed in the reference, not the model's norm eps

// out = x / |x| * scale
void l2_normalize(const KernelTable& kernels, const float* x, int d, float scale,
                  float* out) noexcept {
  const float inverse = scale / std::sqrt(kernels.dot(x, x, d) + kL2Eps);
  for (int c = 0; c < d; ++c) out[c] = x[c] * inverse;
}

}  // namespace

void CpuBackend::short_conv(const ShortConvOp& op) {
  const int past = op.width - 1;
  pool_.parallel_for(op.channels, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = 0; i < op.n; ++i) {
      // Input of time i + back - past: from the state while that lies before this call.
      const auto input = [&](int back) {
        const std::int64_t t = i + back - past;
        return t < 0 ? op.state + (t + past) * op.channels : op.x + t * op.channels;
      };
      for (std::int64_t c = begin; c < end; ++c) {
        float sum = 0;
        for (int tap = 0; tap < op.width; ++tap)
          sum += op.weight[c * op.width + tap] * input(tap)[c];
        op.out[i * op.channels + c] = silu(sum);
      }
    }
    for (int slot = 0; slot < past; ++slot) {  // the last `past` inputs, oldest first
      const std::int64_t t = op.n - past + slot;
      const float* from = t < 0 ? op.state + (t + past) * op.channels : op.x + t * op.channels;
      std::copy(from + begin, from + end, op.state + slot * op.channels + begin);
    }
  });
}

void CpuBackend::gated_delta(const GatedDeltaOp& op) {
  const GatedDeltaSpec& s = *op.spec;
  const int values_per_key = s.n_value_heads / s.n_key_heads;
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(s.d_key));
  pool_.parallel_for(s.n_value_heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    float* q = scratch(worker, 2 * s.d_key);
    float* k = q + s.d_key;
    for (std::int64_t h = begin; h < end; ++h) {
      const float decay_rate = std::exp(op.a_log[h]);
      float* state = op.state + h * s.d_key * s.d_value;  // [d_key, d_value]
      for (std::int64_t i = 0; i < op.n; ++i) {
        const float* qkv = op.qkv + i * s.conv_dim();
        const std::int64_t key_head = h / values_per_key;
        l2_normalize(kernels_, qkv + key_head * s.d_key, s.d_key, q_scale, q);
        l2_normalize(kernels_, qkv + s.key_dim() + key_head * s.d_key, s.d_key, 1.0f, k);
        const float* v = qkv + 2 * s.key_dim() + h * s.d_value;
        const float beta = sigmoid(op.b[i * s.n_value_heads + h]);
        const float decay =
            std::exp(-decay_rate * softplus(op.a[i * s.n_value_heads + h] + op.dt_bias[h]));

        float* out = op.out + (i * s.n_value_heads + h) * s.d_value;
        kernels_.delta_step({.state = state,
                             .d_key = s.d_key,
                             .d_value = s.d_value,
                             .decay = decay,
                             .beta = beta,
                             .q = q,
                             .k = k,
                             .v = v,
                             .out = out});

        const float mean_square = kernels_.dot(out, out, s.d_value) / static_cast<float>(s.d_value);
        const float inverse = 1.0f / std::sqrt(mean_square + op.eps);
        const float* z = op.z + (i * s.n_value_heads + h) * s.d_value;
        for (int c = 0; c < s.d_value; ++c) {
          const float gate = s.output_gate == GateActivation::Silu ? silu(z[c]) : sigmoid(z[c]);
          out[c] = out[c] * inverse * op.norm[c] * gate;
        }
      }
    }
  });
}

}  // namespace moeflux::cpu
