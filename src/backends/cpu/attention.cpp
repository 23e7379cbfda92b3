// Attention over the cache: exact softmax per (token, head), each computed by one thread from
// position 0 upwards.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/cpu_backend.h"

namespace moeflux::cpu {
namespace {

// Turns scores into weights that sum to 1.
void softmax(float* scores, std::int64_t n) noexcept {
  const float top = *std::max_element(scores, scores + n);
  float sum = 0;
  for (std::int64_t t = 0; t < n; ++t) {
    scores[t] = std::exp(scores[t] - top);
    sum += scores[t];
  }
  const float inverse = 1.0f / sum;
  for (std::int64_t t = 0; t < n; ++t) scores[t] *= inverse;
}

}  // namespace

void CpuBackend::attention(const AttentionOp& op) {
  const GatedAttentionSpec& s = *op.spec;
  const std::int64_t kv_stride = std::int64_t{s.n_kv_heads} * s.d_head;
  const int heads_per_kv = s.n_heads / s.n_kv_heads;
  pool_.parallel_for(op.n * s.n_heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t i = task / s.n_heads;
      const std::int64_t h = task % s.n_heads;
      const std::int64_t length = op.first_position + i + 1;
      const float* q = op.q + i * op.token_stride + h * op.head_stride;
      const float* gate = op.gate + i * op.token_stride + h * op.head_stride;
      const float* k = op.k + h / heads_per_kv * s.d_head;
      const float* v = op.v + h / heads_per_kv * s.d_head;
      float* out = op.out + (i * s.n_heads + h) * s.d_head;

      float* scores = scratch(worker, length);
      for (std::int64_t t = 0; t < length; ++t)
        scores[t] = kernels_.dot(q, k + t * kv_stride, s.d_head) * s.scale;
      softmax(scores, length);
      std::fill_n(out, s.d_head, 0.0f);
      for (std::int64_t t = 0; t < length; ++t)
        kernels_.axpy(scores[t], v + t * kv_stride, out, s.d_head);
      for (int c = 0; c < s.d_head; ++c) out[c] *= sigmoid(gate[c]);
    }
  });
}

void CpuBackend::latent_attention(const LatentAttentionOp& op) {
  const MlaSpec& s = *op.spec;
  pool_.parallel_for(op.n * s.n_heads, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t i = task / s.n_heads;
      const std::int64_t h = task % s.n_heads;
      const std::int64_t length = op.first_position + i + 1;
      const float* q_latent = op.q_latent + task * s.kv_rank;
      const float* q_rope = op.q_rope + i * op.q_rope_token_stride + h * op.q_rope_head_stride;
      float* out = op.out + task * s.kv_rank;

      float* scores = scratch(worker, length);
      for (std::int64_t t = 0; t < length; ++t) {
        scores[t] = (kernels_.dot(q_latent, op.latent + t * s.kv_rank, s.kv_rank) +
                     kernels_.dot(q_rope, op.rope_key + t * s.d_rope, s.d_rope)) *
                    s.scale;
      }
      softmax(scores, length);
      std::fill_n(out, s.kv_rank, 0.0f);
      for (std::int64_t t = 0; t < length; ++t)
        kernels_.axpy(scores[t], op.latent + t * s.kv_rank, out, s.kv_rank);
    }
  });
}

}  // namespace moeflux::cpu
