#include "backends/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"

namespace moeflux::cuda {
namespace {

LoadedDriver load() {
  constexpr const char* kLibrary = "libcuda.so.1";
  LoadedDriver loaded;
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.missing = fmt::format("no NVIDIA driver ({} cannot be opened)", kLibrary);
    return loaded;
  }
  const auto find = [&](auto& function, const char* symbol) {
    void* address = ::dlsym(library, symbol);
    if (address == nullptr && loaded.missing.empty())
      loaded.missing = fmt::format("the NVIDIA driver is too old: {} has no {}", kLibrary, symbol);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
#define MOEFLUX_CUDA_FIND(name, type, symbol) find(loaded.driver.name, symbol);
  MOEFLUX_CUDA_FUNCTIONS(MOEFLUX_CUDA_FIND)
#undef MOEFLUX_CUDA_FIND
  if (!loaded.missing.empty()) return loaded;
  int n_devices = 0;
  CUresult result = loaded.driver.cuInit(0);
  if (result == CUDA_SUCCESS) result = loaded.driver.cuDeviceGetCount(&n_devices);
  if (result != CUDA_SUCCESS || n_devices == 0)
    loaded.missing = fmt::format("the NVIDIA driver finds no GPU (error {})", result);
  return loaded;
}

}  // namespace

const LoadedDriver& loaded_driver() {
  static const LoadedDriver loaded = load();
  return loaded;
}

void check(const Driver& driver, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  const char* what = nullptr;
  driver.cuGetErrorName(result, &name);
  driver.cuGetErrorString(result, &what);
  fail(result == CUDA_ERROR_OUT_OF_MEMORY ? Errc::OutOfMemory : Errc::Io,
       "GPU: {} failed: {} ({}, {})", call, what == nullptr ? "unknown" : what,
       name == nullptr ? "?" : name, result);
}

}  // namespace moeflux::cuda
