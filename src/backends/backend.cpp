#include "backends/backend.h"

#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
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

namespace {

std::vector<BackendInfo>& backends() {
  static std::vector<BackendInfo> list = {
      {.name = "cuda",
       .what = "an NVIDIA GPU",
       .missing = cuda::missing,
       .scratch_needed = cuda::scratch_needed,
       .make = [](const BackendOptions& options) -> std::unique_ptr<Backend> {
         return cuda::make_backend(options, cuda::loaded_driver().driver);
       },
       .is_reached_by_host = false,
       .free_memory = cuda::free_memory},
      {"cpu", "this machine's processors", [] { return std::string(); }, cpu::scratch_needed,
       [](const BackendOptions& options) -> std::unique_ptr<Backend> {
         return std::make_unique<cpu::CpuBackend>(options, cpu::select_kernels(options.isa));
       }},
  };
  return list;
}

}  // namespace

std::span<const BackendInfo> backend_list() {
  return backends();
}

namespace {

std::size_t n_added = 0;

}  // namespace

void add_backend(const BackendInfo& info) {
  backends().push_back(info);
  ++n_added;
}

const BackendInfo& find_backend(std::string_view name) {
  const bool is_auto = name == kAutoBackend;
  if ((name.empty() || is_auto) && n_added > 0) return backends().back();
  if (name.empty()) name = "cpu";
  for (const BackendInfo& info : backends())
    if (is_auto && info.missing().empty()) return info;
  std::string names;
  for (const BackendInfo& info : backends()) {
    if (info.name == name) return info;
    names += names.empty() ? "" : ", ";
    names += info.name;
  }
  fail(Errc::BadInput, "backend {} is unknown; there are: {}", name, names);
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options, std::string_view name) {
  const BackendInfo& info = find_backend(name);
  const std::string missing = info.missing();
  if (!missing.empty()) fail(Errc::BadInput, "backend {}: {}", info.name, missing);
  return info.make(options);
}

}  // namespace moeflux
