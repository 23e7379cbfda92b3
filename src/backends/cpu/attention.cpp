// Attention over the cache: exact softmax per (token, head), from position 0 upwards. Heads that
// share keys and values go together, so that the cache is read once for all of them; that changes
// the order in which numbers are computed, but no number.
#include <algorithm>
#include <cmath>

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

// Heads per task: a divisor of those that share a cache, small enough to keep all threads busy and
// the scores in bounds.
std::int64_t heads_per_task(std::int64_t n_sharing, std::int64_t n_heads_in_all,
                            std::int64_t length, int n_threads) {
  constexpr std::int64_t kMost = 16;
  constexpr std::int64_t kMaxScores = 1 << 20;
  for (std::int64_t heads = std::min(n_sharing, kMost); heads > 1; --heads) {
    if (n_sharing % heads == 0 && n_heads_in_all / heads >= 2 * n_threads &&
        heads * length <= kMaxScores) {
      return heads;
    }
  }
  return 1;
}

}  // namespace

void CpuBackend::attention(const AttentionOp& op) {
  const GatedAttentionSpec& s = *op.spec;
  const std::int64_t kv_stride = std::int64_t{s.n_kv_heads} * s.d_head;
  const int heads_per_kv = s.n_heads / s.n_kv_heads;
  const std::int64_t heads =
      heads_per_task(heads_per_kv, op.n * s.n_heads, op.first_position + op.n, pool_.size());
  const std::int64_t tasks = s.n_heads / heads;  // per token
  pool_.parallel_for(op.n * tasks, 1, [&](std::int64_t task, std::int64_t, int worker) {
    const std::int64_t i = task / tasks;
    const std::int64_t h = task % tasks * heads;  // the first
    const std::int64_t length = op.first_position + i + 1;
    const float* q = op.q + i * op.token_stride + h * op.head_stride;
    const float* gate = op.gate + i * op.token_stride + h * op.head_stride;
    const float* k = op.k + h / heads_per_kv * s.d_head;
    const float* v = op.v + h / heads_per_kv * s.d_head;
    float* out = op.out + (i * s.n_heads + h) * s.d_head;

    float* scores = scratch(worker, heads * length);  // [heads, length]
    for (std::int64_t t = 0; t < length; ++t) {
      kernels_.dot_rows(k + t * kv_stride, q, op.head_stride, heads, s.d_head, scores + t, length);
    }
    for (std::int64_t j = 0; j < heads; ++j) {
      float* of_head = scores + j * length;
      for (std::int64_t t = 0; t < length; ++t) of_head[t] *= s.scale;
      softmax(of_head, length);
    }
    std::fill_n(out, heads * s.d_head, 0.0f);
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t j = 0; j < heads; ++j)
        kernels_.axpy(scores[j * length + t], v + t * kv_stride, out + j * s.d_head, s.d_head);
    }
    for (std::int64_t j = 0; j < heads; ++j) {
      for (int c = 0; c < s.d_head; ++c)
        out[j * s.d_head + c] *= sigmoid(gate[j * op.head_stride + c]);
    }
  });
}

void CpuBackend::latent_attention(const LatentAttentionOp& op) {
  const MlaSpec& s = *op.spec;
  const std::int64_t heads =
      heads_per_task(s.n_heads, op.n * s.n_heads, op.first_position + op.n, pool_.size());
  const std::int64_t tasks = s.n_heads / heads;  // per token
  pool_.parallel_for(op.n * tasks, 1, [&](std::int64_t task, std::int64_t, int worker) {
    const std::int64_t i = task / tasks;
    const std::int64_t h = task % tasks * heads;  // the first
    const std::int64_t length = op.first_position + i + 1;
    const float* q_latent = op.q_latent + (i * s.n_heads + h) * s.kv_rank;
    const float* q_rope = op.q_rope + i * op.q_rope_token_stride + h * op.q_rope_head_stride;
    float* out = op.out + (i * s.n_heads + h) * s.kv_rank;

    float* scores = scratch(worker, heads * (length + 1));  // [heads, length]
    float* of_rope = scores + heads * length;               // [heads]
    for (std::int64_t t = 0; t < length; ++t) {
      kernels_.dot_rows(op.latent + t * s.kv_rank, q_latent, s.kv_rank, heads, s.kv_rank,
                        scores + t, length);
      kernels_.dot_rows(op.rope_key + t * s.d_rope, q_rope, op.q_rope_head_stride, heads, s.d_rope,
                        of_rope, 1);
      for (std::int64_t j = 0; j < heads; ++j) {
        float& score = scores[j * length + t];
        score = (score + of_rope[j]) * s.scale;
      }
    }
    for (std::int64_t j = 0; j < heads; ++j) softmax(scores + j * length, length);
    std::fill_n(out, heads * s.kv_rank, 0.0f);
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t j = 0; j < heads; ++j) {
        kernels_.axpy(scores[j * length + t], op.latent + t * s.kv_rank, out + j * s.kv_rank,
                      s.kv_rank);
      }
    }
  });
}

}  // namespace moeflux::cpu
