// The CPU backend in every form this machine can run: tests of operations go through all of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/kernels.h"

namespace moeflux::test {

inline std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const cpu::KernelTable* table : cpu::supported_kernels()) names.emplace_back(table->name);
  return names;
}

inline std::unique_ptr<Backend> cpu_backend(const std::string& isa, int n_threads = 1) {
  return make_backend({.isa = isa, .n_threads = n_threads});
}

// Calls the body with one backend per instruction set; `what` names it for messages.
inline void for_each_backend(
    const std::function<void(Backend& backend, const std::string& what)>& body) {
  for (const std::string& isa : supported_isas()) body(*cpu_backend(isa, 2), isa);
}

}  // namespace moeflux::test
