// Bodies of the kernels of matvec*.cu: what a block does, for the formats of a family. A family
// calls `use` with the ChunkFormat of a weight.
#pragma once

#include "backends/cuda/kernels/activation.h"
#include "backends/cuda/kernels/matvec_jobs.h"
#include "backends/cuda/kernels/vector_rows.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// 4 and 8 bits with scales of 16 bits at usual addresses, rounded activations: what most models are
// made of. Of them alone, since less code is there sooner.
struct CommonDigits {
  template <class Use>
  GPU_INLINE static void with_format(const DeviceWeight& w, const Use& use) {
    if (w.bits == 4)
      use(ChunkFormat<Kind::Affine, 4, true, true>());
    else
      use(ChunkFormat<Kind::Affine, 8, true, true>());
  }
};
// The same for experts, which may lie at other addresses.
struct CommonExperts {
  template <class Use>
  GPU_INLINE static void with_format(const DeviceWeight& w, const Use& use) {
    if (reinterpret_cast<std::uintptr_t>(w.data) % 16 == 0)
      return CommonDigits::with_format(w, use);
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
    if (w.bits == 4) return use(ChunkFormat<Kind::Affine, 4, true>());
    if (w.bits == 8) return use(ChunkFormat<Kind::Affine, 8, true>());
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
template <class Family, int kN>
GPU_INLINE void run_matvec(const MatvecParams& p, int n_rows) {
  let_next_begin();
  const VectorJob job = job_of_block(p);
  const DeviceWeight w = weight_of(p, job);
  const int first = ((block_x() - job.first_block) * (n_threads() / kWarp) + warp()) * p.times *
                    rows_at_a_time(w.cols / kVectorColumns);
  Family::with_format(w, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, kN, false>(
        w, w, first, p.times, n_rows,
        [&]() GPU_LAMBDA {
          if (p.norm.out != nullptr && 8 * thread() < w.cols)
            prefetch(p.norm.weight + 8 * thread());
          wait_for_previous();
          return bring_activations<F>(p.x, p.x_stride, n_rows, w.cols, p.norm);
        },
        [&](int row, int n, float sum, float) GPU_LAMBDA {
          const float y = sum + (job.bias == nullptr ? 0.0f : job.bias[row]);
          job.y[n * std::int64_t{job.y_stride} + row] = y;
          if (p.total != nullptr) p.total[n * p.total_stride + row] += y;
        });
  });
}

template <class Family, int kN>
GPU_INLINE void run_gated(const GatedParams& p, int n_rows) {
  let_next_begin();
  const DeviceWeight w = p.gate, up_weight = p.up;
  const int first = (block_x() * (n_threads() / kWarp) + warp()) * p.times *
                    rows_at_a_time(w.cols / kVectorColumns);
  Family::with_format(w, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, kN, true>(
        w, up_weight, first, p.times, n_rows,
        [&]() GPU_LAMBDA {
          wait_for_previous();
          return bring_activations<F>(p.x, p.x_stride, n_rows, w.cols, {});
        },
        [&](int row, int n, float gate, float up) GPU_LAMBDA {
          gate += p.gate_bias == nullptr ? 0.0f : p.gate_bias[row];
          up += p.up_bias == nullptr ? 0.0f : p.up_bias[row];
          p.y[n * p.y_stride + row] = activate(p.activation, gate, up);
        });
  });
}

// Blocks: rows of weights, pairs and then rows of the shared expert.
template <class Family>
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
  const int warp_rows = p.times * rows_at_a_time(gate.cols / kVectorColumns);
  const int first = (block_x() * (n_threads() / kWarp) + warp()) * warp_rows;
  const int block_rows = (n_threads() / kWarp) * warp_rows;
  if (block_x() * block_rows >= gate.rows) return;
  const std::uintptr_t both =
      reinterpret_cast<std::uintptr_t>(gate.data) | reinterpret_cast<std::uintptr_t>(up.data);
  DeviceWeight kind = gate;
  kind.data = reinterpret_cast<const unsigned char*>(both);
  Family::with_format(kind, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, 1, true>(
        gate, up, first, p.times, 1,
        [&]() GPU_LAMBDA {
          if (is_shared) wait_for_previous();
          const int row = is_shared ? pair - p.n_pairs : pair / p.top_k;
          return bring_activations<F>(p.x + row * p.x_stride, p.x_stride, 1, gate.cols, {});
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

template <class Family>
GPU_INLINE void run_down_pairs(const ExpertPairsParams& p) {
  let_next_begin();
  wait_for_previous();
  const int pair = block_y();
  const FoundExpert found = p.found[pair];
  if (found.gate.data == nullptr) return;
  const DeviceWeight down = placed(p.down, found.down);
  const int first = (block_x() * (n_threads() / kWarp) + warp()) * p.times *
                    rows_at_a_time(down.cols / kVectorColumns);
  const std::int64_t of_expert = p.down_bias == nullptr ? 0 : std::int64_t{p.ids[pair]} * down.rows;
  Family::with_format(down, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    multiply_rows<F, 1, false>(
        down, down, first, p.times, 1,
        [&]() GPU_LAMBDA {
          return bring_activations<F>(p.hidden + pair * p.hidden_stride, p.hidden_stride, 1,
                                      down.cols, {});
        },
        [&](int row, int, float sum, float) GPU_LAMBDA {
          p.out[pair * p.out_stride + row] =
              sum + (p.down_bias == nullptr ? 0.0f : p.down_bias[of_expert + row]);
        });
  });
}

// Blocks: rows of weights, rows of activations. The columns of a row's experts are one long row of
// chunks, whose sums are multiplied with the weight of their expert; those of the shared expert
// follow. The second half of a block's memory has the activations of the shared expert.
template <class Family>
GPU_INLINE void run_expert_sums(const ExpertSumsParams& p) {
  GPU_SHARED FoundPlanes planes[kMostSummed];
  let_next_begin();
  const int n = block_y(), first_pair = n * p.top_k;
  const int of_pair = p.down.cols / kVectorColumns, n_chunks = p.top_k * of_pair;
  const auto pair_of = [&](int chunk) GPU_LAMBDA {  // exact: there are few chunks
    return static_cast<int>((static_cast<float>(chunk) + 0.5f) * p.pairs_of_chunk);
  };
  const int of_shared = p.shared_down.data == nullptr ? 0 : p.shared_down.cols / kVectorColumns;
  const int first_row = (block_x() * (n_threads() / kWarp) + warp()) * p.times;
  wait_for_previous();
  if (thread() < p.top_k) planes[thread()] = p.found[first_pair + thread()].down;
  if (p.ids_copy != nullptr && block_x() == 0 && thread() < p.top_k)
    p.ids_copy[first_pair + thread()] = p.ids[first_pair + thread()];
  const float gate = p.shared_gate == nullptr ? 1.0f : sigmoid(p.shared_gate[n]);
  sync();
  DeviceWeight down = p.down;
  std::uintptr_t places = 0;
  for (int i = 0; i < p.top_k; ++i) places |= reinterpret_cast<std::uintptr_t>(planes[i].data);
  down.data = reinterpret_cast<const unsigned char*>(places);
  VectorMemory shared_memory;
  CommonDigits::with_format(p.shared_down, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    shared_memory = vector_memory<F>(of_shared, 1, p.shared_offset);
  });
  Family::with_format(down, [&](auto format) GPU_LAMBDA {
    using F = decltype(format);
    constexpr int kSteps = F::kBits <= 4 ? 4 : 2;
    Chunks<F, 1, kSteps> chunks;
    const auto load = [&](int row, int first) GPU_LAMBDA {
      const int rows[1] = {row < p.down.rows ? row : p.down.rows - 1};
      chunks.load(p.down, rows, first, n_chunks, [&](int chunk) GPU_LAMBDA {
        const int pair = pair_of(chunk);
        return typename Chunks<F, 1, kSteps>::Place{
            planes[pair], planes[pair].data == nullptr ? -1 : chunk - pair * of_pair};
      });
    };
    load(first_row, lane());
    CommonDigits::with_format(p.shared_down, [&](auto shared_format) GPU_LAMBDA {
      using S = decltype(shared_format);
      put_row<S>(shared_memory, 0, of_shared, [&](int eight, float(&values)[8]) GPU_LAMBDA {
        load_eight<true>(p.shared_hidden + n * p.shared_hidden_stride + 8 * eight, values);
        return gate;
      });
    });
    const VectorMemory memory = vector_memory<F>(n_chunks, 1);
    put_row<F>(memory, 0, n_chunks, [&](int eight, float(&values)[8]) GPU_LAMBDA {
      const int pair = pair_of(eight / 4);
      load_eight<true>(
          p.hidden + (first_pair + pair) * p.hidden_stride + 8 * (eight - 4 * pair * of_pair),
          values);
      const bool is_there = planes[pair].data != nullptr;
      if (!is_there) {
        GPU_UNROLL
        for (int i = 0; i < 8; ++i) values[i] = 0;
      }
      return is_there ? p.weights[first_pair + pair] : 0.0f;
    });
    sync();
    GPU_ROLLED
    for (int row = first_row; row < first_row + p.times && row < p.down.rows; ++row) {
      const int rows[1] = {row};
      float sums[1][1] = {};
      GPU_ROLLED
      for (int first = lane(); first < n_chunks; first += kSteps * kWarp) {
        if (row != first_row || first != lane()) load(row, first);
        chunks.multiply(p.down, first, 1, memory, sums);
      }
      CommonDigits::with_format(p.shared_down, [&](auto shared_format) GPU_LAMBDA {
        using S = decltype(shared_format);
        GPU_ROLLED
        for (int first = lane(); first < of_shared; first += kWarp) {
          Chunks<S, 1, 1> of_row;
          of_row.load(p.shared_down, rows, first);
          of_row.multiply(p.shared_down, first, 1, shared_memory, sums);
        }
      });
      float sum = sums[0][0];
      if (lane() == 0 && p.shared_bias != nullptr) sum += gate * p.shared_bias[row];
      if (p.down_bias != nullptr && lane() < p.top_k && planes[lane()].data != nullptr)
        sum += p.weights[first_pair + lane()] *
               p.down_bias[std::int64_t{p.ids[first_pair + lane()]} * p.down.rows + row];
      sum = warp_sum(sum);
      if (lane() != 0) continue;
      p.out[n * p.out_stride + row] = sum;
      if (p.total != nullptr) p.total[n * p.total_stride + row] += sum;
    }
  });
}

}  // namespace moeflux::gpu
GPU_CODE_END
