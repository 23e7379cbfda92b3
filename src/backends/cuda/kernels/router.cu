// Choosing experts, and putting together what they yield.
#include "backends/cuda/kernels/router.h"

#include "backends/cuda/kernels/gpu.h"
#include "base/portable_math.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

// The index of the largest value of a warp that is not taken, the first of equals; -1: all are.
inline int largest(float value, int index) {
  GPU_UNROLL
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float other = shuffle_xor(value, mask);
    const int at = shuffle_xor(index, mask);
    const bool is_better = index < 0 || (at >= 0 && (other > value || (other == value && at < index)));
    if (at >= 0 && is_better) {
      value = other;
      index = at;
    }
  }
  return index;
}

inline float score(bool is_exact, bool is_sigmoid, float logit, float top) {
  if (!is_exact) return is_sigmoid ? sigmoid(logit) : exp(logit - top);
  return is_sigmoid ? portable::sigmoid(logit) : portable::exp(logit - top);
}

}  // namespace

// A warp for each row; blocks of one warp.
GPU_KERNEL(route, RouteParams, 32) {
  GPU_SHARED float choice[kMostExperts];
  GPU_SHARED float scores[kMostExperts];
  const float* logits = p.logits + block_x() * p.stride;
  const int n = p.n_experts;
  float top = logits[lane() < n ? lane() : 0];
  for (int e = lane(); e < n; e += kWarp) top = max(top, logits[e]);
  top = warp_max(top);
  float sum = 0;
  for (int e = lane(); e < n; e += kWarp) {
    const float s = p.scores_chosen ? logits[e] : score(p.is_exact, p.is_sigmoid, logits[e], top);
    scores[e] = s;
    sum += s;
  }
  if (!p.scores_chosen && !p.is_sigmoid) {
    sum = warp_sum(sum);
    for (int e = lane(); e < n; e += kWarp) scores[e] /= sum;
  }
  for (int e = lane(); e < n; e += kWarp)
    choice[e] = scores[e] + (p.correction_bias == nullptr ? 0.0f : p.correction_bias[e]);
  sync_warp();

  constexpr float kNever = -__builtin_inff();
  if (p.n_groups > 1) {  // a lane for each group, 32 at most at a time
    GPU_SHARED float groups[kWarp];
    const int size = n / p.n_groups;
    if (lane() < p.n_groups) {
      float first = kNever, second = kNever;
      for (int e = lane() * size; e < (lane() + 1) * size; ++e) {
        if (choice[e] > first) {
          second = first;
          first = choice[e];
        } else if (choice[e] > second) {
          second = choice[e];
        }
      }
      groups[lane()] = first + second;
    }
    sync_warp();
    bool is_taken = lane() >= p.n_groups, is_kept = false;
    for (int i = 0; i < p.top_groups; ++i) {
      const int best = largest(lane() < p.n_groups ? groups[lane()] : 0.0f, is_taken ? -1 : lane());
      if (best == lane()) is_taken = is_kept = true;
    }
    if (lane() < p.n_groups && !is_kept) {
      for (int e = lane() * size; e < (lane() + 1) * size; ++e) choice[e] = kNever;
    }
    sync_warp();
  }

  std::int32_t* ids = p.ids + block_x() * p.top_k;
  float* weights = p.weights + block_x() * p.top_k;
  std::uint32_t taken = 0;  // of the experts of this lane
  for (int slot = 0; slot < p.top_k; ++slot) {
    float best = 0;
    int index = -1;
    for (int i = 0, e = lane(); e < n; ++i, e += kWarp) {
      if (taken >> i & 1u) continue;
      if (index < 0 || choice[e] > best) {
        best = choice[e];
        index = e;
      }
    }
    index = largest(best, index);
    if (index % kWarp == lane()) taken |= 1u << (index / kWarp);
    if (lane() == 0) {
      ids[slot] = index;
      weights[slot] = scores[index];
    }
  }
  sync_warp();
  if (lane() != 0) return;
  if (p.scores_chosen) {
    float most = weights[0], all = 0;
    for (int slot = 1; slot < p.top_k; ++slot) most = max(most, weights[slot]);
    for (int slot = 0; slot < p.top_k; ++slot)
      all += weights[slot] = score(p.is_exact, p.is_sigmoid, weights[slot], most);
    if (!p.is_sigmoid)
      for (int slot = 0; slot < p.top_k; ++slot) weights[slot] /= all;
  }
  float total = 1e-20f;
  for (int slot = 0; slot < p.top_k; ++slot) total += weights[slot];
  for (int slot = 0; slot < p.top_k; ++slot) {
    if (p.normalize) weights[slot] /= total;
    weights[slot] *= p.scale;
    if (p.expert_scales != nullptr) weights[slot] *= p.expert_scales[ids[slot]];
  }
}

// Blocks: pieces of a row, rows.
GPU_KERNEL(combine, CombineParams, 256) {
  const int c = block_x() * n_threads() + thread();
  if (c >= p.d) return;
  const std::int64_t row = block_y();
  float sum = 0;
  for (std::int64_t pair = row * p.top_k; pair < (row + 1) * p.top_k; ++pair)
    sum += p.weights[pair] * p.experts[pair * p.experts_stride + c];
  if (p.shared != nullptr) {
    const float gate = p.shared_gate == nullptr ? 1.0f : portable::sigmoid(p.shared_gate[row]);
    sum += gate * p.shared[row * p.shared_stride + c];
  }
  p.out[row * p.out_stride + c] = sum;
}

}  // namespace moeflux::gpu
GPU_CODE_END
