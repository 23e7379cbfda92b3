// A GPU with its streams and the kernels of this program.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/driver.h"

namespace moeflux::cuda {

// PTX of one file of kernels, and the names in it.
struct KernelModule {
  const char* ptx;
  std::span<const char* const> kernels;
};
std::span<const KernelModule> kernel_modules();

// Blocks and their threads.
struct Grid {
  unsigned x = 1, y = 1, z = 1;
  unsigned threads = 32;
  unsigned shared_bytes = 0;
};

class Device {
 public:
  // The driver must outlive it. Throws Error.
  Device(const Driver& driver, int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const { return driver_; }
  const std::string& name() const { return name_; }
  int n_processors() const { return n_processors_; }
  bool overlaps() const { return overlaps_; }                     // kernels, see kernels/gpu.h
  std::size_t most_shared_bytes() const { return most_shared_; }  // of a block
  CUstream compute() const { return compute_; }                   // operations, in order
  CUstream copies() const { return copies_; }                     // beside them

  // Loads the kernel's module when it is first asked for.
  CUfunction kernel(std::string_view name);
  // The same name, as long as the device lives. Of a kernel that has been asked for.
  std::string_view name_of(std::string_view kernel) const { return kernels_.find(kernel)->first; }

  struct Memory {
    std::size_t free = 0, total = 0;
  };
  Memory memory() const;

 private:
  const Driver& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream compute_ = nullptr, copies_ = nullptr;
  std::string name_;
  int n_processors_ = 0;
  bool overlaps_ = false;
  std::size_t most_shared_ = 0;
  std::vector<CUmodule> modules_;  // as kernel_modules(), null where not loaded
  std::map<std::string_view, CUfunction> kernels_;
};

}  // namespace moeflux::cuda
