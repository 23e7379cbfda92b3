// Operands as addresses of the device.
#pragma once

#include "backends/cuda/driver.h"
#include "backends/cuda/kernels/operands.h"
#include "backends/op.h"

namespace moeflux::cuda {

inline CUdeviceptr address(const Buffer* buffer, std::uint64_t offset) {
  return reinterpret_cast<std::uintptr_t>(buffer->address()) + offset;
}
inline CUdeviceptr address(const Bytes& bytes) {
  return address(bytes.buffer, bytes.offset);
}
// Null for an operand that is not there.
inline float* floats(const View& view) {
  return view.empty() ? nullptr : reinterpret_cast<float*>(address(view.buffer, view.offset));
}
inline std::int32_t* ints(const View& view) {
  return view.empty() ? nullptr
                      : reinterpret_cast<std::int32_t*>(address(view.buffer, view.offset));
}

// Without planes where the weight has none of its own: those of an expert come from its table.
gpu::DeviceWeight device_weight(const Weight& weight);

gpu::DeviceKv device_kv(const KvView& cache);

}  // namespace moeflux::cuda
