// Parts of attention become results.
#include "backends/cuda/kernels/attention_parts.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// Blocks: tokens, heads. A thread takes four columns of every n_sharers-th part.
GPU_KERNEL(merge_attention, AttentionParams, kMergeThreads) {
  GPU_SHARED float factors[kMostPieces];
  GPU_SHARED float part_sums[kMostPieces];
  GPU_SHARED float memory[64];
  GPU_SHARED FloatQuad shared[kMergeThreads];
  const Query query{block_x(), block_y()};
  const Seen seen = seen_by(p, query.token, query.token);
  const int first_block = seen.begin / p.key_block;
  const int n_blocks = (seen.end + p.key_block - 1) / p.key_block;
  const int n_pieces = n_blocks < p.n_pieces ? n_blocks : p.n_pieces;

  float top = kNothing;
  for (int i = thread(); i < n_pieces; i += n_threads()) {
    const bool has_blocks = next_block(p, first_block, i) < n_blocks;  // else nobody wrote it
    SoftmaxSum part{kNothing, 0};
    if (has_blocks) part = p.sums[part_of(p, i, query)];
    factors[i] = part.max;
    part_sums[i] = part.sum;
    top = max(top, factors[i]);
  }
  top = warp_max(top);
  if (lane() == 0) memory[32 + warp()] = top;
  sync();
  for (int w = 0; w < n_threads() / kWarp; ++w) top = max(top, memory[32 + w]);
  float sum = 0;
  for (int i = thread(); i < n_pieces; i += n_threads()) {
    const float factor = exp2(factors[i] - top);  // 0 of what saw nothing
    factors[i] = factor;
    sum += factor * part_sums[i];
  }
  sum = block_sum(sum, memory);
  const float factor = last_factor(p, query.head, {top, sum});

  const int n_quads = (p.d_value + 3) / 4;
  for (int begin = 0; begin < n_quads; begin += n_threads()) {
    const int here = n_quads - begin < n_threads() ? n_quads - begin : n_threads();
    const int n_sharers = n_threads() / here, sharer = thread() / here;
    const int c = (begin + thread() % here) * 4;
    FloatQuad value{0, 0, 0, 0};
    if (sharer < n_sharers) {
      for (int i = sharer; i < n_pieces; i += n_sharers) {
        const float* part = p.parts + part_of(p, i, query) * p.d_value + c;
        const float f = factors[i];
        if (f == 0) continue;
        if (p.d_value % 4 == 0) {
          const FloatQuad quad = *reinterpret_cast<const FloatQuad*>(part);
          value.x += f * quad.x;
          value.y += f * quad.y;
          value.z += f * quad.z;
          value.w += f * quad.w;
        } else {
          value.x += f * part[0];
          if (c + 1 < p.d_value) value.y += f * part[1];
          if (c + 2 < p.d_value) value.z += f * part[2];
          if (c + 3 < p.d_value) value.w += f * part[3];
        }
      }
    }
    sync();
    shared[thread()] = value;
    sync();
    // A column of all sharers, by one thread.
    const auto* columns = reinterpret_cast<const float*>(shared);
    for (int i = thread(); i < here * 4; i += n_threads()) {
      const int column = begin * 4 + i;
      if (column >= p.d_value) continue;
      float total = 0;
      for (int s = 0; s < n_sharers; ++s) total += columns[s * here * 4 + i];
      finish_value(p, query, column, total * factor);
    }
  }
}

}  // namespace moeflux::gpu
GPU_CODE_END
