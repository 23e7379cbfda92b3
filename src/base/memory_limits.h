// What memory this process may use: what the machine has available, what the control groups it
// runs in leave of that, and what its resource limits allow. Read from files of the kernel below a
// root directory, so that tests bring their own; never throws, whatever those files hold.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "base/system_file.h"

namespace moeflux {

inline constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// The groups around this process, as far as they have a memory controller.
struct CgroupMemory {
  int version = 0;  // 1 or 2; 0: in no group
  // The tightest of all groups. Crossing the soft one (memory.high) slows a process down to a
  // crawl, so it counts like the hard one.
  std::uint64_t hard_limit = kNoLimit;
  std::uint64_t soft_limit = kNoLimit;
  std::uint64_t usage = 0;        // of our own group, page cache and other processes included
  std::uint64_t reclaimable = 0;  // of that, what the kernel reclaims on demand: page cache mostly
  // What is left until some group, not necessarily the one with the tightest limit, is full.
  std::uint64_t left = kNoLimit;
  std::uint64_t swap_limit = kNoLimit;
  std::uint64_t swap_usage = 0;

  std::uint64_t limit() const { return hard_limit < soft_limit ? hard_limit : soft_limit; }
};

struct MemoryLimits {
  std::uint64_t total = 0;      // of the machine; 0: not known
  std::uint64_t available = 0;  // of it, without pushing anything out to swap
  std::uint64_t swap_total = 0;
  std::uint64_t swap_free = 0;
  CgroupMemory cgroup;
  std::uint64_t address_space_left = kNoLimit;  // RLIMIT_AS less what is mapped
  std::uint64_t data_left = kNoLimit;           // RLIMIT_DATA less what counts for it
};

MemoryLimits read_memory_limits(const std::string& root = "/");

// The part of read_memory_limits() about groups, for whoever reads it often: the groups are found
// once, with find_cgroup("memory").
CgroupMemory read_cgroup_memory(const Cgroup& cgroup);

// MemAvailable of /proc/meminfo's text; on a kernel that does not have it, free memory and page
// cache. Nothing when the text says neither.
std::optional<std::uint64_t> available_in(const std::string& meminfo);

// What may still be allocated: the smallest of everything above.
std::uint64_t usable_memory(const MemoryLimits& limits);

// What is left alone for everybody else and for what is not accounted for: 512 MiB or a twentieth
// of the memory there is (of the machine or the tightest group), whichever is more; but never more
// than a quarter of that memory, or a small group would have nothing but reserve.
std::uint64_t memory_reserve(std::uint64_t memory);

// The ceiling when the user names none: usable_memory() less the reserve; half of it where less
// than two reserves are usable.
std::uint64_t default_ram_budget(const MemoryLimits& limits);

}  // namespace moeflux
