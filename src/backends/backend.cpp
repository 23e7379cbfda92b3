#include "backends/backend.h"

#include "backends/cpu/cpu_backend.h"
#include "base/error.h"

namespace moeflux {

std::string_view precision_name(Precision precision) {
  switch (precision) {
    case Precision::Exact:
      return "exact";
    case Precision::Fine:
      return "fine";
    case Precision::Fast:
      return "fast";
  }
  return "?";
}

std::span<const BackendInfo> backend_list() {
  static constexpr BackendInfo kBackends[] = {
      {"cpu", "this machine's processors", [] { return std::string(); }, cpu::scratch_needed,
       [](const BackendOptions& options) -> std::unique_ptr<Backend> {
         return std::make_unique<cpu::CpuBackend>(options, cpu::select_kernels(options.isa));
       }},
  };
  return kBackends;
}

const BackendInfo& find_backend(std::string_view name) {
  std::string names;
  for (const BackendInfo& info : backend_list()) {
    if (info.name == name) return info;
    names += names.empty() ? "" : ", ";
    names += info.name;
  }
  fail(Errc::BadInput, "backend {} is unknown; there are: {}", name, names);
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options, std::string_view name) {
  const BackendInfo& info = find_backend(name);
  const std::string missing = info.missing();
  if (!missing.empty()) fail(Errc::BadInput, "backend {}: {}", name, missing);
  return info.make(options);
}

}  // namespace moeflux
