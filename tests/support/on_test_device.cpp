// A test program that has this file computes on the test device where MOEFLUX_TEST_DEVICE says so:
// "host" has the host drive the experts, "device" the device itself.
#include <cstdlib>
#include <string_view>

#include "support/test_device.h"

namespace moeflux::test {
namespace {

std::string_view wanted() {
  const char* value = std::getenv("MOEFLUX_TEST_DEVICE");
  return value == nullptr ? std::string_view() : value;
}

const bool is_added = [] {
  if (wanted().empty()) return false;
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
