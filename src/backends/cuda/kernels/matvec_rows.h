// Bodies of the kernels of matvec*.cu: what a block does, for the formats of a family. A family
// calls `use` with the ChunkFormat of a weight.
#pragma once

#include "backends/cuda/kernels/activation.h"
#include "backends/cuda/kernels/vector_rows.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// 4 and 8 bits, with rounded activations: what most models are made of.
struct CommonDigits {
  template <class Use>
  GPU_INLINE static void with_format(const DeviceWeight& w, const Use& use) {
    if (w.bits == 4)
      use(ChunkFormat<Kind::Affine, 4, true>());
    else
      use(ChunkFormat<Kind::Affine, 8, true>());
  }
};
struct OtherDigits {
  template <class Use>
  GPU_INLINE static void with_format(const DeviceWeight& w, const Use& use) {
    if (w.kind == Kind::Fp4) return use(ChunkFormat<Kind::Fp4, 4, true>());
    if (w.bits == 2) return use(ChunkFormat<Kind::Affine, 2, true>());
    if (w.bits == 3) return use(ChunkFormat<Kind::Affine, 3, true>());
    if (w.bits == 5) return use(ChunkFormat<Kind::Affine, 5, true>());
    use(ChunkFormat<Kind::Affine, 6, true>());
  }
};
struct Floats {
  template <class Use>
  GPU_INLINE static void with_format(const DeviceWeight& w, const Use& use) {
    if (w.kind == Kind::BF16) return use(ChunkFormat<Kind::BF16, 16, false>());
    if (w.kind == Kind::F16) return use(ChunkFormat<Kind::F16, 16, false>());
    if (w.kind == Kind::Fp8Block) return use(ChunkFormat<Kind::Fp8Block, 8, false>());
    use(ChunkFormat<Kind::F32, 32, false>());
  }
};
// Integers and small floats, activations as they are.
struct ExactCodes {
  template <class Use>
  GPU_INLINE static void with_format(const DeviceWeight& w, const Use& use) {
    if (w.kind == Kind::Fp4) return use(ChunkFormat<Kind::Fp4, 4, false>());
    if (w.bits == 4) return use(ChunkFormat<Kind::Affine, 4, false>());
    if (w.bits == 8) return use(ChunkFormat<Kind::Affine, 8, false>());
    if (w.bits == 2) return use(ChunkFormat<Kind::Affine, 2, false>());
    if (w.bits == 3) return use(ChunkFormat<Kind::Affine, 3, false>());
    if (w.bits == 5) return use(ChunkFormat<Kind::Affine, 5, false>());
    use(ChunkFormat<Kind::Affine, 6, false>());
  }
};

// n_rows rows of activations, at most kN. Blocks: those of the jobs, one after the other.
template <class Family, int kN, int kR>
GPU_INLINE void run_matvec(const MatvecParams& p, int n_rows) {
  // By constant indices: parameters that are indexed would be copied first.
  VectorJob job = p.jobs[0];
  GPU_UNROLL
  for (int j = 1; j < kMostJobs; ++j) {
    if (j < p.n_jobs && block_x() >= p.jobs[j].first_block) job = p.jobs[j];
  }
  const DeviceWeight w = job.weight;
  const int first = ((block_x() - job.first_block) * kVectorWarps + warp()) *
                    rows_of_warp<kR>(w.cols / kVectorColumns);
  Family::with_format(w, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, kN, kR, false>(
        w, w, first, n_rows,
        [&]() GPU_LAMBDA { return bring_activations<F>(job.x, job.x_stride, n_rows, w.cols); },
        [&](int row, int n, float sum, float) GPU_LAMBDA {
          job.y[n * job.y_stride + row] = sum + (job.bias == nullptr ? 0.0f : job.bias[row]);
        });
  });
}

template <class Family, int kN, int kR>
GPU_INLINE void run_gated(const GatedParams& p, int n_rows) {
  const DeviceWeight w = p.gate, up_weight = p.up;
  const int first = (block_x() * kVectorWarps + warp()) * rows_of_warp<kR>(w.cols / kVectorColumns);
  Family::with_format(w, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, kN, kR, true>(
        w, up_weight, first, n_rows,
        [&]() GPU_LAMBDA { return bring_activations<F>(p.x, p.x_stride, n_rows, w.cols); },
        [&](int row, int n, float gate, float up) GPU_LAMBDA {
          gate += p.gate_bias == nullptr ? 0.0f : p.gate_bias[row];
          up += p.up_bias == nullptr ? 0.0f : p.up_bias[row];
          p.y[n * p.y_stride + row] = activate(p.activation, gate, up);
        });
  });
}

GPU_INLINE DeviceWeight placed(DeviceWeight w, const FoundPlanes& planes) {
  w.data = planes.data;
  w.scales = planes.scales;
  w.biases = planes.biases;
  return w;
}

// Blocks: rows of weights, pairs.
template <class Family, int kR>
GPU_INLINE void run_gated_pairs(const ExpertPairsParams& p) {
  const int pair = block_y();
  const FoundExpert found = p.found[pair];
  if (found.gate.data == nullptr) return;
  const DeviceWeight gate = placed(p.gate, found.gate), up = placed(p.up, found.up);
  const int first =
      (block_x() * kVectorWarps + warp()) * rows_of_warp<kR>(gate.cols / kVectorColumns);
  const std::int64_t of_expert = p.gate_bias == nullptr ? 0 : std::int64_t{p.ids[pair]} * gate.rows;
  Family::with_format(gate, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, 1, kR, true>(
        gate, up, first, 1,
        [&]() GPU_LAMBDA {
          return bring_activations<F>(p.x + pair / p.top_k * p.x_stride, p.x_stride, 1, gate.cols);
        },
        [&](int row, int, float g, float u) {
          if (p.gate_bias != nullptr) {
            g += p.gate_bias[of_expert + row];
            u += p.up_bias[of_expert + row];
          }
          p.hidden[pair * p.hidden_stride + row] = activate(p.activation, g, u);
        });
  });
}

template <class Family, int kR>
GPU_INLINE void run_down_pairs(const ExpertPairsParams& p) {
  const int pair = block_y();
  const FoundExpert found = p.found[pair];
  if (found.gate.data == nullptr) return;
  const DeviceWeight down = placed(p.down, found.down);
  const int first =
      (block_x() * kVectorWarps + warp()) * rows_of_warp<kR>(down.cols / kVectorColumns);
  const std::int64_t of_expert = p.down_bias == nullptr ? 0 : std::int64_t{p.ids[pair]} * down.rows;
  Family::with_format(down, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, 1, kR, false>(
        down, down, first, 1,
        [&]() GPU_LAMBDA {
          return bring_activations<F>(p.hidden + pair * p.hidden_stride, p.hidden_stride, 1,
                                      down.cols);
        },
        [&](int row, int, float sum, float) {
          p.out[pair * p.out_stride + row] =
              sum + (p.down_bias == nullptr ? 0.0f : p.down_bias[of_expert + row]);
        });
  });
}

}  // namespace moeflux::gpu
GPU_CODE_END
