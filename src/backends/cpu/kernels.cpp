#include "backends/cpu/kernels.h"

#include <array>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "base/cpu_features.h"
#include "base/error.h"

namespace moeflux::cpu {

namespace {

#if defined(__x86_64__)
// The state of the tile unit is large, so Linux gives it only to processes that ask.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

// The function is code for the instruction set itself: it must not run where that is missing.
struct Candidate {
  const char* name;
  const KernelTable& (*table)();
  bool supported;
};

// Every table compiled in, from the plainest to the best.
const auto& candidates() {
  static const std::array kCandidates {
    Candidate{"scalar", scalar_kernels, true},
#if defined(__x86_64__)
        Candidate{"avx2", avx2_kernels, cpu_features().avx2},
        Candidate{"avx512", avx512_kernels, cpu_features().avx512},
        Candidate{"avx512vnni", avx512vnni_kernels,
                  cpu_features().avx512 && cpu_features().avx512_vnni},
        Candidate{"amx", amx_kernels,
                  cpu_features().avx512_vnni && cpu_features().amx_int8 && may_use_tiles()},
#elif defined(__aarch64__)
        Candidate{"neon", neon_kernels, true},
        Candidate{"neon_dotprod", neon_dotprod_kernels, cpu_features().dotprod},
#endif
  };
  return kCandidates;
}

}  // namespace

std::span<const KernelTable* const> supported_kernels() {
  static const std::vector<const KernelTable*> kSupported = [] {
    std::vector<const KernelTable*> tables;
    for (const Candidate& candidate : candidates()) {
      if (candidate.supported) tables.push_back(&candidate.table());
    }
    return tables;
  }();
  return kSupported;
}

const KernelTable& select_kernels(std::string_view name) {
  if (name.empty()) return *supported_kernels().back();
  std::string known;
  for (const Candidate& candidate : candidates()) {
    if (name == candidate.name) {
      if (!candidate.supported) fail(Errc::Unsupported, "this processor has no {}", name);
      return candidate.table();
    }
    known += known.empty() ? "" : ", ";
    known += candidate.name;
  }
  fail(Errc::BadInput, "unknown instruction set \"{}\" (known: {})", name, known);
}

}  // namespace moeflux::cpu
