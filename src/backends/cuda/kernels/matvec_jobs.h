// The products of a launch (matvec.h).
#pragma once

#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/matvec.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

GPU_INLINE DeviceWeight placed(DeviceWeight w, const FoundPlanes& planes) {
  w.data = planes.data;
  w.scales = planes.scales;
  w.biases = planes.biases;
  return w;
}

// The product a block belongs to. By constant indices: parameters that are indexed would be copied.
GPU_INLINE VectorJob job_of_block(const MatvecParams& p) {
  VectorJob job = p.jobs[0];
  GPU_UNROLL
  for (int j = 1; j < kMostJobs; ++j) {
    if (j < p.n_jobs && block_x() >= p.jobs[j].first_block) job = p.jobs[j];
  }
  return job;
}
GPU_INLINE DeviceWeight weight_of(const MatvecParams& p, const VectorJob& job) {
  DeviceWeight w = placed(p.weight, job.planes);
  w.rows = job.rows;
  w.block_row0 = job.block_row0;
  return w;
}

}  // namespace moeflux::gpu
GPU_CODE_END
