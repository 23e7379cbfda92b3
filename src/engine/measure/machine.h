// What this machine is, as far as it matters for speed and memory: read from the kernel's files,
// measured by nothing. Holds no name of a host, a user or a path. What the kernel does not say is
// empty or 0; nothing throws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/memory_limits.h"
#include "base/memory_pressure.h"

namespace moeflux {

struct CpuDescription {
  std::string name;
  std::string features;  // those the kernels use: "avx2 avx512"
  int n_sockets = 0;
  int n_cores = 0;    // physical ones
  int n_threads = 0;  // logical ones
  int n_usable = 0;   // logical ones this process may run on
  double quota = 0;   // processors a control group allows at a time; 0: all of them
  int n_nodes = 0;    // of memory (NUMA)
  std::uint64_t l3_bytes = 0;
  std::string governor;  // of the frequency of the first processor: "powersave"
};

// A limit of this process; kNoLimit: there is none.
struct ResourceLimits {
  std::uint64_t open_files = kNoLimit;
  std::uint64_t locked_memory = kNoLimit;
  std::uint64_t address_space = kNoLimit;
};

struct KernelDescription {
  std::string release;                          // "6.1.0-25-amd64"
  std::string architecture;                     // "x86_64"
  std::optional<std::uint64_t> uring_disabled;  // sysctl kernel.io_uring_disabled: 0, 1 or 2
  bool seccomp = false;                         // a filter decides which calls we may make
  std::string huge_pages;                       // transparent ones: "always", "madvise", "never"
};

struct MachineDescription {
  CpuDescription cpu;
  KernelDescription kernel;
  ResourceLimits limits;
  MemoryLimits memory;
  std::optional<MemoryPressure> pressure;
};

// `root` stands for "/". Features of the processor, the affinity of the process and the release of
// the kernel come from the running system.
MachineDescription describe_machine(const std::string& root = "/");

// The one in brackets of "always [madvise] never"; empty when there is none.
std::string selected_word(std::string_view text);

}  // namespace moeflux
