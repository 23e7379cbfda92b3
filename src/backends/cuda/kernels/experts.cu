// Looking experts up, and products whose weights have no chunks.
#include "backends/cuda/kernels/activation.h"
#include "backends/cuda/kernels/experts.h"
#include "backends/cuda/kernels/find_pairs.h"
#include "backends/cuda/kernels/matvec_jobs.h"
#include "backends/cuda/kernels/weights.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

// One block.
GPU_KERNEL(find_experts, FindExpertsParams, 256) {
  find_pairs(p);
}

// Blocks: rows of weights (a warp each). Any format, one number at a time.
GPU_KERNEL(matvec_any, MatvecParams, kVectorThreads) {
  const VectorJob job = job_of_block(p);
  const DeviceWeight w = weight_of(p, job);
  const int row = (block_x() - job.first_block) * (n_threads() / kWarp) + warp();
  if (row >= w.rows) return;
  for (int n = 0; n < p.n_rows; ++n) {
    float sum = 0;
    for (int c = lane(); c < w.cols; c += kWarp)
      sum += weight_at(w, row, c) * p.x[n * p.x_stride + c];
    sum = warp_sum(sum);
    if (lane() == 0)
      job.y[n * std::int64_t{job.y_stride} + row] =
          sum + (job.bias == nullptr ? 0.0f : job.bias[row]);
  }
}

GPU_KERNEL(gated_any, GatedParams, kVectorThreads) {
  const int row = block_x() * (n_threads() / kWarp) + warp();
  if (row >= p.gate.rows) return;
  for (int n = 0; n < p.n_rows; ++n) {
    float gate = 0, up = 0;
    for (int c = lane(); c < p.gate.cols; c += kWarp) {
      gate += weight_at(p.gate, row, c) * p.x[n * p.x_stride + c];
      up += weight_at(p.up, row, c) * p.x[n * p.x_stride + c];
    }
    gate = warp_sum(gate) + (p.gate_bias == nullptr ? 0.0f : p.gate_bias[row]);
    up = warp_sum(up) + (p.up_bias == nullptr ? 0.0f : p.up_bias[row]);
    if (lane() == 0) p.y[n * p.y_stride + row] = activate(p.activation, gate, up);
  }
}

// Blocks: rows of weights, pairs.
GPU_KERNEL(gated_pairs_any, ExpertPairsParams, kVectorThreads) {
  const int row = block_x() * (n_threads() / kWarp) + warp(), pair = block_y();
  const FoundExpert& found = p.found[pair];
  if (row >= p.gate.rows || found.gate.data == nullptr) return;
  DeviceWeight g = p.gate, u = p.up;
  g.data = found.gate.data, g.scales = found.gate.scales, g.biases = found.gate.biases;
  u.data = found.up.data, u.scales = found.up.scales, u.biases = found.up.biases;
  float gate = 0, up = 0;
  for (int c = lane(); c < g.cols; c += kWarp) {
    const float x = p.x[pair / p.top_k * p.x_stride + c];
    gate += weight_at(g, row, c) * x;
    up += weight_at(u, row, c) * x;
  }
  gate = warp_sum(gate);
  up = warp_sum(up);
  if (lane() != 0) return;
  if (p.gate_bias != nullptr) {
    gate += p.gate_bias[std::int64_t{p.ids[pair]} * g.rows + row];
    up += p.up_bias[std::int64_t{p.ids[pair]} * g.rows + row];
  }
  p.hidden[pair * p.hidden_stride + row] = activate(p.activation, gate, up);
}

GPU_KERNEL(down_pairs_any, ExpertPairsParams, kVectorThreads) {
  const int row = block_x() * (n_threads() / kWarp) + warp(), pair = block_y();
  const FoundExpert& found = p.found[pair];
  if (row >= p.down.rows || found.gate.data == nullptr) return;
  DeviceWeight w = p.down;
  w.data = found.down.data, w.scales = found.down.scales, w.biases = found.down.biases;
  float sum = 0;
  for (int c = lane(); c < w.cols; c += kWarp)
    sum += weight_at(w, row, c) * p.hidden[pair * p.hidden_stride + c];
  sum = warp_sum(sum);
  if (lane() != 0) return;
  if (p.down_bias != nullptr) sum += p.down_bias[std::int64_t{p.ids[pair]} * w.rows + row];
  p.out[pair * p.out_stride + row] = sum;
}

}  // namespace moeflux::gpu
GPU_CODE_END
