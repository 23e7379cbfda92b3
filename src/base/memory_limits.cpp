#include "base/memory_limits.h"

#include <algorithm>

#include <unistd.h>

#include "base/system_file.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kLeastReserve = std::uint64_t{512} << 20;
// Version 1 writes "no limit" as the largest number of whole pages.
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;

std::uint64_t minus(std::uint64_t a, std::uint64_t b) {
  return a > b ? a - b : 0;
}

std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  return a > kNoLimit - b ? kNoLimit : a + b;
}

std::uint64_t read_limit(const std::string& path) {
  const auto limit = read_system_number(path);
  return limit && *limit < kUnlimited ? *limit : kNoLimit;
}

struct Names {
  const char* hard_limit;
  const char* soft_limit;
  const char* usage;
  const char* inactive_file;  // in memory.stat, of the group and those below it
  const char* active_file;
};
// memory.soft_limit_in_bytes of version 1 is a hint for reclaim, not a limit: it is not read.
constexpr Names kVersion1 = {"/memory.limit_in_bytes", nullptr, "/memory.usage_in_bytes",
                             "total_inactive_file", "total_active_file"};
constexpr Names kVersion2 = {"/memory.max", "/memory.high", "/memory.current", "inactive_file",
                             "active_file"};

struct Level {
  std::uint64_t hard_limit = kNoLimit;
  std::uint64_t soft_limit = kNoLimit;
  std::uint64_t usage = 0;
  std::uint64_t reclaimable = 0;
};

// The kernel reclaims a group's page cache when its memory is asked for, used lately or not; pages
// that are not written yet take as long as writing them. So it counts for MemAvailable, too. These
// lists hold neither shared memory (tmpfs) nor locked pages. Kernel objects count half: a page of
// them is free only when all that lie on it are. Whether another program misses its pages is seen
// while we run (memory_pressure.h).
std::uint64_t reclaimable_in(const std::string& stat, const Names& names) {
  const auto bytes = [&](const char* name) { return find_number(stat, name).value_or(0); };
  return plus(plus(bytes(names.inactive_file), bytes(names.active_file)),
              bytes("slab_reclaimable") / 2);  // only version 2 counts these
}

Level read_level(const std::string& directory, const Names& names, bool skip_if_unlimited) {
  Level level;
  level.hard_limit = read_limit(directory + names.hard_limit);
  if (names.soft_limit != nullptr) level.soft_limit = read_limit(directory + names.soft_limit);
  level.usage = read_system_number(directory + names.usage).value_or(0);
  // The kernel adds up many counters for this file: not read where it cannot matter.
  if (skip_if_unlimited && level.hard_limit == kNoLimit && level.soft_limit == kNoLimit) {
    return level;
  }
  const auto stat = read_system_file(directory + "/memory.stat");
  if (!stat) return level;
  level.reclaimable = std::min(reclaimable_in(*stat, names), level.usage);
  // Only in version 1: includes groups that are not mounted here.
  const auto around = find_number(*stat, "hierarchical_memory_limit");
  if (around && *around < kUnlimited) level.hard_limit = std::min(level.hard_limit, *around);
  return level;
}

void read_swap(const std::string& directory, int version, std::uint64_t usage,
               CgroupMemory& memory) {
  if (version == 2) {
    memory.swap_limit = read_limit(directory + "/memory.swap.max");
    memory.swap_usage = read_system_number(directory + "/memory.swap.current").value_or(0);
    return;
  }
  // Version 1 counts memory and swap together.
  const std::uint64_t both = read_limit(directory + "/memory.memsw.limit_in_bytes");
  if (both != kNoLimit && memory.hard_limit != kNoLimit) {
    memory.swap_limit = minus(both, memory.hard_limit);
  }
  memory.swap_usage =
      minus(read_system_number(directory + "/memory.memsw.usage_in_bytes").value_or(0), usage);
}

// What is left of a limit of /proc/self/limits, such as "Max address space  1024  2048  bytes".
std::uint64_t resource_left(const std::string& limits, std::string_view name,
                            const std::optional<std::uint64_t>& used) {
  for (const std::string_view line : split_lines(limits)) {
    if (line.substr(0, name.size()) != name) continue;
    const std::vector<std::string_view> words = split_words(line.substr(name.size()));
    const auto soft = words.empty() ? std::nullopt : parse_number(words[0]);
    return soft ? minus(*soft, used.value_or(0)) : kNoLimit;
  }
  return kNoLimit;
}

void read_machine(const std::string& root, MemoryLimits& limits) {
  const auto meminfo = read_system_file(under_root(root, "/proc/meminfo"));
  if (meminfo) {
    limits.total = find_number(*meminfo, "MemTotal").value_or(0);
    limits.available = available_in(*meminfo).value_or(0);
    limits.swap_total = find_number(*meminfo, "SwapTotal").value_or(0);
    limits.swap_free = find_number(*meminfo, "SwapFree").value_or(0);
  } else if (root == "/") {  // no /proc here; this call needs none
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    limits.total = page * static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
    limits.available = page * static_cast<std::uint64_t>(std::max(::sysconf(_SC_AVPHYS_PAGES), 0L));
  }
}

}  // namespace

CgroupMemory read_cgroup_memory(const Cgroup& cgroup) {
  CgroupMemory memory;
  if (cgroup.version == 0) return memory;
  memory.version = cgroup.version;
  const Names& names = cgroup.version == 1 ? kVersion1 : kVersion2;
  bool own = true;
  for (const std::string& directory : cgroup.directories) {
    const Level level = read_level(directory, names, !own);
    memory.hard_limit = std::min(memory.hard_limit, level.hard_limit);
    memory.soft_limit = std::min(memory.soft_limit, level.soft_limit);
    const std::uint64_t limit = std::min(level.hard_limit, level.soft_limit);
    if (limit != kNoLimit) {
      memory.left = std::min(memory.left, minus(limit, level.usage - level.reclaimable));
    }
    if (own) {
      memory.usage = level.usage;
      memory.reclaimable = level.reclaimable;
      read_swap(directory, cgroup.version, level.usage, memory);
    }
    own = false;
  }
  return memory;
}

std::optional<std::uint64_t> available_in(const std::string& meminfo) {
  if (const auto available = find_number(meminfo, "MemAvailable")) return available;
  const auto free = find_number(meminfo, "MemFree");
  if (!free) return std::nullopt;
  const std::uint64_t cached =
      minus(find_number(meminfo, "Cached").value_or(0), find_number(meminfo, "Shmem").value_or(0));
  return plus(*free, cached);
}

MemoryLimits read_memory_limits(const std::string& root) {
  MemoryLimits limits;
  read_machine(root, limits);
  limits.cgroup = read_cgroup_memory(find_cgroup("memory", root));
  const auto rlimits = read_system_file(under_root(root, "/proc/self/limits"));
  if (rlimits) {
    const std::string status = read_system_file(under_root(root, "/proc/self/status")).value_or("");
    limits.address_space_left =
        resource_left(*rlimits, "Max address space", find_number(status, "VmSize"));
    limits.data_left = resource_left(*rlimits, "Max data size", find_number(status, "VmData"));
  }
  return limits;
}

std::uint64_t usable_memory(const MemoryLimits& limits) {
  return std::min(
      {limits.available, limits.cgroup.left, limits.address_space_left, limits.data_left});
}

std::uint64_t memory_reserve(std::uint64_t memory) {
  return std::min(std::max(kLeastReserve, memory / 20), memory / 4);
}

std::uint64_t default_ram_budget(const MemoryLimits& limits) {
  const std::uint64_t usable = usable_memory(limits);
  const std::uint64_t reserve =
      memory_reserve(std::min(std::max(limits.total, usable), limits.cgroup.limit()));
  return usable > 2 * reserve ? usable - reserve : usable / 2;
}

}  // namespace moeflux
