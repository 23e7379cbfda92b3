// A test program that has this file computes on the test device where MOEFLUX_TEST_DEVICE says so:
// "host" has the host drive the experts, "device" the device itself. "cuda" is the CUDA backend on
// the emulated GPU, "cuda-gpu" on a real one.
#include <cstdlib>
#include <string_view>

#include "backends/cuda/cuda_backend.h"
#include "support/cuda/emulated_driver.h"
#include "support/test_device.h"

namespace moeflux::test {
namespace {

std::string_view wanted() {
  const char* value = std::getenv("MOEFLUX_TEST_DEVICE");
  return value == nullptr ? std::string_view() : value;
}

const bool is_added = [] {
  if (wanted().empty()) return false;
  if (wanted() == "cuda-gpu") {
    add_backend(find_backend("cuda"));
    return true;
  }
  if (wanted() == "cuda") {
    add_backend({.name = "cuda-emulated",
                 .what = "an emulated GPU",
                 .missing = [] { return std::string(); },
                 .scratch_needed = cuda::scratch_needed,
                 .make =
                     [](const BackendOptions& options) {
                       return cuda::make_backend(options, emulated_cuda_driver());
                     },
                 .is_reached_by_host = false});
    return true;
  }
  add_backend({.name = "test",
               .what = "a device for tests",
               .missing = [] { return std::string(); },
               .scratch_needed = find_backend("cpu").scratch_needed,
               .make = [](const BackendOptions& options) -> std::unique_ptr<Backend> {
                 return std::make_unique<TestDevice>(
                     make_backend(options, "cpu"),
                     TestDeviceOptions{.drives_experts = wanted() == "device"});
               },
               .is_reached_by_host = false});
  return true;
}();

}  // namespace
}  // namespace moeflux::test
