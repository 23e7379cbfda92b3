// Bodies of the kernels of matvec*.cu: what a block does, for the formats of a family. A family
// calls `use` with the ChunkFormat of a weight.
#pragma once

#include "backends/cuda/kernels/activation.h"
#include "backends/cuda/kernels/vector_rows.h"
#include "base/portable_math.h"

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

// Chunks that a thread takes at a time, where `steps` of 4 bits are meant: as many bytes.
template <class F>
constexpr int steps_of(int steps) {
  return F::kBits <= 4 ? steps : 4 * steps >= F::kBits ? 4 * steps / F::kBits : 1;
}

// n_rows rows of activations, at most kN. Blocks: those of the jobs, one after the other.
template <class Family, int kN, int kR, int kSteps>
GPU_INLINE void run_matvec(const MatvecParams& p, int n_rows) {
  let_next_begin();
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
    multiply_rows<F, kN, kR, steps_of<F>(kSteps), false>(
        w, w, first, n_rows,
        [&]() GPU_LAMBDA {
          wait_for_previous();
          if constexpr (kTakesEights<F>) {
            if (p.norm.out != nullptr)
              return bring_normed<F>(job.x, job.x_stride, n_rows, w.cols, p.norm);
          }
          return bring_activations<F>(job.x, job.x_stride, n_rows, w.cols);
        },
        [&](int row, int n, float sum, float) GPU_LAMBDA {
          const float y = sum + (job.bias == nullptr ? 0.0f : job.bias[row]);
          job.y[n * job.y_stride + row] = y;
          if (job.total != nullptr) job.total[n * job.total_stride + row] += y;
        });
  });
}

template <class Family, int kN, int kR, int kSteps>
GPU_INLINE void run_gated(const GatedParams& p, int n_rows) {
  let_next_begin();
  const DeviceWeight w = p.gate, up_weight = p.up;
  const int first = (block_x() * kVectorWarps + warp()) * rows_of_warp<kR>(w.cols / kVectorColumns);
  Family::with_format(w, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, kN, kR, steps_of<F>(kSteps), true>(
        w, up_weight, first, n_rows,
        [&]() GPU_LAMBDA {
          wait_for_previous();
          return bring_activations<F>(p.x, p.x_stride, n_rows, w.cols);
        },
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

// Blocks: rows of weights, pairs and then rows of the shared expert.
template <class Family, int kR, int kSteps>
GPU_INLINE void run_gated_pairs(const ExpertPairsParams& p) {
  let_next_begin();
  const int pair = block_y();
  const bool is_shared = pair >= p.n_pairs;
  DeviceWeight gate = p.shared_gate, up = p.shared_up;
  if (!is_shared) {
    wait_for_previous();
    const FoundExpert found = p.found[pair];
    if (found.gate.data == nullptr) return;
    gate = placed(p.gate, found.gate);
    up = placed(p.up, found.up);
  }
  const int first =
      (block_x() * kVectorWarps + warp()) * rows_of_warp<kR>(gate.cols / kVectorColumns);
  const int block_rows = kVectorWarps * rows_of_warp<kR>(gate.cols / kVectorColumns);
  if (block_x() * block_rows >= gate.rows) return;
  Family::with_format(gate, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, 1, kR, steps_of<F>(kSteps), true>(
        gate, up, first, 1,
        [&]() GPU_LAMBDA {
          if (is_shared) wait_for_previous();
          const int row = is_shared ? pair - p.n_pairs : pair / p.top_k;
          return bring_activations<F>(p.x + row * p.x_stride, p.x_stride, 1, gate.cols);
        },
        [&](int row, int, float g, float u) GPU_LAMBDA {
          if (is_shared) {
            if (p.shared_gate_bias != nullptr) g += p.shared_gate_bias[row];
            if (p.shared_up_bias != nullptr) u += p.shared_up_bias[row];
            p.shared_hidden[(pair - p.n_pairs) * p.shared_hidden_stride + row] =
                activate(p.activation, g, u);
            return;
          }
          if (p.gate_bias != nullptr) {
            const std::int64_t of_expert = std::int64_t{p.ids[pair]} * gate.rows;
            g += p.gate_bias[of_expert + row];
            u += p.up_bias[of_expert + row];
          }
          p.hidden[pair * p.hidden_stride + row] = activate(p.activation, g, u);
        });
  });
}

template <class Family, int kR, int kSteps>
GPU_INLINE void run_down_pairs(const ExpertPairsParams& p) {
  let_next_begin();
  wait_for_previous();
  const int pair = block_y();
  const FoundExpert found = p.found[pair];
  if (found.gate.data == nullptr) return;
  const DeviceWeight down = placed(p.down, found.down);
  const int first =
      (block_x() * kVectorWarps + warp()) * rows_of_warp<kR>(down.cols / kVectorColumns);
  const std::int64_t of_expert = p.down_bias == nullptr ? 0 : std::int64_t{p.ids[pair]} * down.rows;
  Family::with_format(down, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, 1, kR, steps_of<F>(kSteps), false>(
        down, down, first, 1,
        [&]() GPU_LAMBDA {
          return bring_activations<F>(p.hidden + pair * p.hidden_stride, p.hidden_stride, 1,
                                      down.cols);
        },
        [&](int row, int, float sum, float) GPU_LAMBDA {
          p.out[pair * p.out_stride + row] =
              sum + (p.down_bias == nullptr ? 0.0f : p.down_bias[of_expert + row]);
        });
  });
}

// Blocks: rows of weights, rows of activations. The columns of a row's experts are one long row of
// chunks whose sums are multiplied with the weight of their expert; those of the shared expert
// follow. Up to 8 bits, digits.
template <class Family, int kR, int kSteps>
GPU_INLINE void run_expert_sums(const ExpertSumsParams& p) {
  GPU_SHARED FoundPlanes planes[kMostSummed];
  let_next_begin();
  const int n = block_y(), first_pair = n * p.top_k;
  const int of_pair = p.down.cols / kVectorColumns, n_chunks = p.top_k * of_pair;
  const int of_shared = p.shared_down.data == nullptr ? 0 : p.shared_down.cols / kVectorColumns;
  int rows[kR];
  const int first_row = (block_x() * kVectorWarps + warp()) * kR;
  GPU_UNROLL
  for (int r = 0; r < kR; ++r)
    rows[r] = first_row + r < p.down.rows ? first_row + r : p.down.rows - 1;
  float sums[kR][1] = {};

  wait_for_previous();
  if (thread() < p.top_k) planes[thread()] = p.found[first_pair + thread()].down;
  sync();
  Family::with_format(p.down, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    constexpr int kBatch = steps_of<F>(kSteps);
    std::uint32_t dwords[kBatch][kR][F::kBits];
    ScaleAndOffset scales[kBatch][kR];
    const auto load = [&](int first) GPU_LAMBDA {
      GPU_UNROLL
      for (int s = 0; s < kBatch; ++s) {
        const int chunk = first + s * kWarp;
        if (chunk >= n_chunks) continue;
        const int pair = chunk / of_pair, local = chunk - pair * of_pair;
        const DeviceWeight w = placed(p.down, planes[pair]);
        GPU_UNROLL
        for (int r = 0; r < kR; ++r) {
          if (w.data != nullptr) {
            load_dwords<F::kBits>(
                w.data + rows[r] * w.row_bytes + std::int64_t{local} * 4 * F::kBits, dwords[s][r]);
            scales[s][r] = chunk_scale<F>(w, rows[r], local);
          } else {
            GPU_UNROLL
            for (int i = 0; i < F::kBits; ++i) dwords[s][r][i] = 0;
            scales[s][r] = {0, 0};
          }
        }
      }
    };
    load(lane());
    const VectorMemory memory = vector_memory<F>(n_chunks, 1);
    put_row<F>(memory, 0, [&](int eight, float(&values)[8]) GPU_LAMBDA {
      const int chunk = eight / 4, pair = chunk / of_pair;
      load_eight(p.hidden + (first_pair + pair) * p.hidden_stride + 8 * (eight - 4 * pair * of_pair),
                 values);
      const bool is_there = planes[pair].data != nullptr;
      if (!is_there) {
        GPU_UNROLL
        for (int i = 0; i < 8; ++i) values[i] = 0;
      }
      return is_there ? p.weights[first_pair + pair] : 0.0f;
    });
    sync();
    for (int first = lane(); first < n_chunks; first += kBatch * kWarp) {
      if (first != lane()) load(first);
      GPU_UNROLL
      for (int s = 0; s < kBatch; ++s) {
        const int chunk = first + s * kWarp;
        if (chunk < n_chunks)
          multiply_chunk<F, 1, kR>(p.down, rows, dwords[s], scales[s], chunk, memory, sums);
      }
    }
  });
  if (of_shared > 0) {
    Family::with_format(p.shared_down, [&](auto format) GPU_LAMBDA {
      using F = decltype(format);
      Chunks<F, kR, 1> chunks;
      chunks.load(p.shared_down, rows, lane());
      const float gate =
          p.shared_gate == nullptr ? 1.0f : portable::sigmoid(p.shared_gate[n]);
      sync();  // the memory is free
      const VectorMemory memory = vector_memory<F>(of_shared, 1);
      put_row<F>(memory, 0, [&](int eight, float(&values)[8]) GPU_LAMBDA {
        load_eight(p.shared_hidden + n * p.shared_hidden_stride + 8 * eight, values);
        return gate;
      });
      sync();
      for (int first = lane(); first < of_shared; first += kWarp) {
        if (first != lane()) chunks.load(p.shared_down, rows, first);
        chunks.multiply(p.shared_down, rows, first, memory, sums);
      }
      if (p.shared_bias != nullptr && lane() == 0) {
        GPU_UNROLL
        for (int r = 0; r < kR; ++r) sums[r][0] += gate * p.shared_bias[rows[r]];
      }
    });
  }
  if (p.down_bias != nullptr && lane() < p.top_k && planes[lane()].data != nullptr) {
    const std::int64_t of_expert = std::int64_t{p.ids[first_pair + lane()]} * p.down.rows;
    GPU_UNROLL
    for (int r = 0; r < kR; ++r)
      sums[r][0] += p.weights[first_pair + lane()] * p.down_bias[of_expert + rows[r]];
  }
  GPU_UNROLL
  for (int r = 0; r < kR; ++r) {
    const float sum = warp_sum(sums[r][0]);
    const int row = first_row + r;
    if (lane() != 0 || row >= p.down.rows) continue;
    p.out[n * p.out_stride + row] = sum;
    if (p.total != nullptr) p.total[n * p.total_stride + row] += sum;
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
