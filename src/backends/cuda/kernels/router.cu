// Choosing experts, and putting together what they yield.
#include "backends/cuda/kernels/find_pairs.h"
#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/router.h"
#include "base/portable_math.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {
namespace {

template <bool kIsExact>
inline float score(bool is_sigmoid, float logit, float top) {
  if constexpr (!kIsExact) return is_sigmoid ? sigmoid(logit) : exp(logit - top);
  return is_sigmoid ? portable::sigmoid(logit) : portable::exp(logit - top);
}

// Larger where x is; what is not a number comes before all others.
inline std::uint32_t rank_of(float x) {
  if (!(x == x)) return 1;
  const std::uint32_t bits = bits_of(x == 0 ? 0.0f : x);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

constexpr std::uint32_t kTaken = 0;  // no rank: -inf has 0x007FFFFF

// A warp chooses the experts of a row. Lane i has experts i, 32 + i, 64 + i, ..., kPerLane of them.
template <bool kIsExact, int kPerLane>
GPU_INLINE void route_row(const RouteParams& p, int row, bool is_rehearsal) {
  const float* logits = p.logits + row * p.stride;
  const int n = p.n_experts;
  constexpr float kNever = -__builtin_inff();
  float scores[kPerLane], top = kNever;
  GPU_UNROLL
  for (int i = 0; i < kPerLane; ++i) {
    const int e = i * kWarp + lane();
    scores[i] = e >= n ? kNever : is_rehearsal ? 0.0f : logits[e];
    top = max(top, scores[i]);
  }
  if (!p.scores_chosen) {
    top = warp_max(top);
    float sum = 0;
    GPU_UNROLL
    for (int i = 0; i < kPerLane; ++i) {
      const bool is_there = i * kWarp + lane() < n;
      scores[i] = is_there ? score<kIsExact>(p.is_sigmoid, scores[i], top) : 0.0f;
      sum += scores[i];
    }
    if (!p.is_sigmoid) {
      sum = warp_sum(sum);
      GPU_UNROLL
      for (int i = 0; i < kPerLane; ++i) scores[i] /= sum;
    }
  }
  float choice[kPerLane];
  GPU_UNROLL
  for (int i = 0; i < kPerLane; ++i) {
    const int e = i * kWarp + lane();
    choice[i] = scores[i] + (p.correction_bias == nullptr || e >= n ? 0.0f : p.correction_bias[e]);
  }

  if (p.n_groups > 1) {  // the best two of each count; a group at a time
    const int size = n / p.n_groups;
    float sum_of_group = kNever;  // of this lane's group: there are at most 32
    for (int g = 0; g < p.n_groups; ++g) {
      float first = kNever, second = kNever;
      GPU_UNROLL
      for (int i = 0; i < kPerLane; ++i) {
        const int e = i * kWarp + lane();
        const bool is_in = e >= g * size && e < (g + 1) * size;
        const float x = is_in ? choice[i] : kNever;
        if (x > first) {
          second = first;
          first = x;
        } else if (x > second) {
          second = x;
        }
      }
      GPU_UNROLL
      for (int mask = kWarp / 2; mask > 0; mask /= 2) {
        const float other_first = shuffle_xor(first, mask),
                    other_second = shuffle_xor(second, mask);
        const float lower = min(first, other_first);
        first = max(first, other_first);
        second = max(lower, max(second, other_second));
      }
      if (lane() == g) sum_of_group = first + second;
    }
    std::uint32_t of_group = lane() < p.n_groups ? rank_of(sum_of_group) : kTaken;
    std::uint32_t kept = 0;  // a bit for each group
    for (int i = 0; i < p.top_groups; ++i) {
      const std::uint32_t best = warp_largest(of_group);
      const std::uint32_t who = ballot(of_group == best);
      const int winner = count_bits((who & (0u - who)) - 1);
      kept |= 1u << winner;
      if (lane() == winner) of_group = kTaken;
    }
    GPU_UNROLL
    for (int i = 0; i < kPerLane; ++i) {
      const int e = i * kWarp + lane();
      if (e < n && (kept >> (e / size) & 1u) == 0) choice[i] = kNever;
    }
  }

  std::uint32_t ranks[kPerLane];
  GPU_UNROLL
  for (int i = 0; i < kPerLane; ++i)
    ranks[i] = i * kWarp + lane() < n ? rank_of(choice[i]) : kTaken;
  float own_weight = 0;  // of slot lane()
  int own_id = 0;
  for (int slot = 0; slot < p.top_k; ++slot) {
    std::uint32_t best = kTaken;
    GPU_UNROLL
    for (int i = 0; i < kPerLane; ++i) best = ranks[i] > best ? ranks[i] : best;
    best = warp_largest(best);
    std::uint32_t expert = ~0u;  // the first of equals
    GPU_UNROLL
    for (int i = kPerLane - 1; i >= 0; --i)
      if (ranks[i] == best) expert = static_cast<std::uint32_t>(i * kWarp + lane());
    expert = warp_smallest(expert);
    float own = 0;
    GPU_UNROLL
    for (int i = 0; i < kPerLane; ++i) {
      if (static_cast<std::uint32_t>(i * kWarp + lane()) != expert) continue;
      ranks[i] = kTaken;
      own = scores[i];
    }
    own = shuffle(own, static_cast<int>(expert) % kWarp);
    if (lane() == slot) {
      own_weight = own;
      own_id = static_cast<int>(expert);
    }
  }
  const bool is_slot = lane() < p.top_k;
  if (p.scores_chosen) {
    const float most = warp_max(is_slot ? own_weight : kNever);
    own_weight = is_slot ? score<kIsExact>(p.is_sigmoid, own_weight, most) : 0.0f;
    if (!p.is_sigmoid) own_weight /= warp_sum(own_weight);
  }
  if (p.normalize) own_weight /= warp_sum(own_weight) + 1e-20f;
  own_weight *= p.scale;
  if (!is_slot || is_rehearsal) return;
  if (p.expert_scales != nullptr) own_weight *= p.expert_scales[own_id];
  p.ids[row * p.top_k + lane()] = own_id;
  p.weights[row * p.top_k + lane()] = own_weight;
}

template <bool kIsExact>
GPU_INLINE void route_any(const RouteParams& p, int row, bool is_rehearsal = false) {
  if (p.n_experts <= 256)
    route_row<kIsExact, 8>(p, row, is_rehearsal);
  else
    route_row<kIsExact, kMostExperts / kWarp>(p, row, is_rehearsal);
}

}  // namespace

// A warp for each row; blocks of one warp.
GPU_KERNEL(route, RouteParams, 32) {
  route_any<false>(p, block_x());
}
GPU_KERNEL(route_exact, RouteParams, 32) {
  route_any<true>(p, block_x());
}

// One block: a warp for each row, and then all look their experts up. Most of its time would be
// spent waiting for instructions: it rehearses while the kernel before it still runs.
GPU_EARLY_KERNEL(route_and_find, RouteAndFindParams, 256) {
  let_next_begin();
  GPU_ROLLED
  for (int is_real = 0; is_real < 2; ++is_real) {
    if (is_real != 0) wait_for_previous();
    if (warp() < p.n_rows) route_any<false>(p.route, warp(), is_real == 0);
  }
  sync();
  find_pairs(p.find);
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
    const float gate = p.shared_gate == nullptr ? 1.0f
                       : p.is_exact             ? portable::sigmoid(p.shared_gate[row])
                                                : sigmoid(p.shared_gate[row]);
    sum += gate * p.shared[row * p.shared_stride + c];
  }
  p.out[row * p.out_stride + c] = sum;
}

}  // namespace moeflux::gpu
GPU_CODE_END
