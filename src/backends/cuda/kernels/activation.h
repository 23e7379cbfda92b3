// What becomes of a gate and an up value (FfnActivation).
#pragma once

#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/matvec.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

inline float activate(const ActivationParams& activation, float gate, float up) {
  switch (activation.kind) {
    case Activation::Silu:
      return gate * sigmoid(gate) * up;
    case Activation::Gelu: {  // 0.5 (1 + tanh(u)) is sigmoid(2 u)
      const float u = 0.7978845608028654f * (gate + 0.044715f * gate * gate * gate);
      return gate * sigmoid(2 * u) * up;
    }
    case Activation::ClampedSwiglu: {
      const float bounded = min(gate, activation.limit);
      const float linear = max(-activation.limit, min(up, activation.limit));
      return bounded * sigmoid(activation.alpha * bounded) * (linear + 1);
    }
  }
  return 0;
}

}  // namespace moeflux::gpu
GPU_CODE_END
