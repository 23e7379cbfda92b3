// What the kernels of router.cu take.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/experts.h"

namespace moeflux::gpu {

inline constexpr int kMostExperts = 1024;  // of a layer

struct RouteParams {
  const float* logits;
  std::int64_t stride;
  const float* correction_bias;  // null: none
  const float* expert_scales;    // null: none
  std::int32_t* ids;
  float* weights;
  std::int32_t n_experts, top_k, n_groups, top_groups;
  std::int32_t is_sigmoid, scores_chosen, normalize;
  float scale;
  std::int32_t unused;
};

struct RouteAndFindParams {
  RouteParams route;
  FindExpertsParams find;
  std::int32_t n_rows, unused;
};

struct CombineParams {
  const float* experts;
  const float* weights;
  const float* shared;       // null: none
  const float* shared_gate;  // null: the shared expert counts as it is
  float* out;
  std::int64_t experts_stride, shared_stride, out_stride;
  std::int32_t d, top_k, is_exact, unused;
};

}  // namespace moeflux::gpu
