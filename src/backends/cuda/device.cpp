#include "backends/cuda/device.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"

namespace moeflux::cuda {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// PTX whose kernels overlap, for GPUs that can.
std::string overlapping(const char* ptx) {
  std::string text = ptx;
  replace_all(text, ".target sm_80", ".target sm_90");
  replace_all(text, "//griddepcontrol.", "griddepcontrol.");
  return text;
}

int attribute(const Driver& driver, CUdevice device, int which) {
  int value = 0;
  MOEFLUX_CUDA(driver, cuDeviceGetAttribute, &value, which, device);
  return value;
}

}  // namespace

Device::Device(const Driver& driver, int index)
    : driver_(driver), modules_(kernel_modules().size()) {
  MOEFLUX_CUDA(driver_, cuDeviceGet, &device_, index);
  std::array<char, 256> name{};
  MOEFLUX_CUDA(driver_, cuDeviceGetName, name.data(), static_cast<int>(name.size()), device_);
  name_ = name.data();
  const int major = attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  if (major < 8)
    fail(Errc::Unsupported, "{}: kernels need a GPU of compute capability 8.0 or later", name_);
  overlaps_ = major >= 9;
  n_processors_ = attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  most_shared_ = static_cast<std::size_t>(
      attribute(driver_, device_, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  MOEFLUX_CUDA(driver_, cuDevicePrimaryCtxRetain, &context_, device_);
  MOEFLUX_CUDA(driver_, cuCtxSetCurrent, context_);
  MOEFLUX_CUDA(driver_, cuStreamCreate, &compute_, CU_STREAM_NON_BLOCKING);
  MOEFLUX_CUDA(driver_, cuStreamCreate, &copies_, CU_STREAM_NON_BLOCKING);
}

Device::~Device() {
  driver_.cuStreamSynchronize(compute_);
  driver_.cuStreamSynchronize(copies_);
  for (CUmodule module : modules_) {
    if (module != nullptr) driver_.cuModuleUnload(module);
  }
  driver_.cuStreamDestroy(compute_);
  driver_.cuStreamDestroy(copies_);
  driver_.cuDevicePrimaryCtxRelease(device_);
}

Device::Memory Device::memory() const {
  Memory memory;
  MOEFLUX_CUDA(driver_, cuMemGetInfo, &memory.free, &memory.total);
  return memory;
}

CUfunction Device::kernel(std::string_view name) {
  const auto known = kernels_.find(name);
  if (known != kernels_.end()) return known->second;
  const auto modules = kernel_modules();
  for (std::size_t m = 0; m < modules.size(); ++m) {
    for (const char* each : modules[m].kernels) {
      if (name != each) continue;
      if (modules_[m] == nullptr) {
        const std::string ptx = overlaps_ ? overlapping(modules[m].ptx) : modules[m].ptx;
        MOEFLUX_CUDA(driver_, cuModuleLoadData, &modules_[m], ptx.c_str());
      }
      CUfunction function = nullptr;
      MOEFLUX_CUDA(driver_, cuModuleGetFunction, &function, modules_[m], each);
      constexpr std::size_t kUsualShared = 48 << 10;
      if (most_shared_ > kUsualShared) {
        // Static memory counts as well; what is left of a block's is enough for all launches.
        driver_.cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                   static_cast<int>(most_shared_ - (8 << 10)));
      }
      kernels_.emplace(each, function);
      return function;
    }
  }
  fail(Errc::Unsupported, "this program has no kernel called {}", name);
}

}  // namespace moeflux::cuda
