#include "base/processors.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/system_file.h"

namespace moeflux {
namespace {

constexpr int kMaxListed = 1 << 16;

}  // namespace

std::vector<int> usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> usable;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return usable;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) usable.push_back(i);
  }
  return usable;
}

std::vector<int> parse_processor_list(std::string_view list) {
  std::vector<int> numbers;
  list = trimmed(list);
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view range = list.substr(0, comma);
    const std::size_t dash = range.find('-');
    const auto first = parse_number(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last >= kMaxListed) return {};
    for (std::uint64_t i = *first; i <= *last; ++i) numbers.push_back(static_cast<int>(i));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return numbers;
}

double processor_quota(const std::string& root) {
  const Cgroup cgroup = find_cgroup("cpu", root);
  double tightest = 0;
  for (const std::string& directory : cgroup.directories) {
    std::optional<std::uint64_t> quota, period;
    if (cgroup.version == 2) {  // "150000 100000" or "max 100000"
      const std::string line = read_system_line(directory + "/cpu.max");
      const std::vector<std::string_view> words = split_words(line);
      if (words.size() == 2) {
        quota = parse_number(words[0]);
        period = parse_number(words[1]);
      }
    } else {
      quota = read_system_number(directory + "/cpu.cfs_quota_us");  // -1: no limit
      period = read_system_number(directory + "/cpu.cfs_period_us");
    }
    if (!quota || !period || *quota == 0 || *period == 0) continue;
    const double processors = static_cast<double>(*quota) / static_cast<double>(*period);
    tightest = tightest > 0 ? std::min(tightest, processors) : processors;
  }
  return tightest;
}

int default_thread_count(const std::vector<int>& usable, const std::string& root) {
  std::set<std::string> cores;
  for (const int processor : usable) {
    const std::string topology =
        under_root(root, "/sys/devices/system/cpu/cpu") + std::to_string(processor) + "/topology";
    const std::string core = read_system_line(topology + "/core_id");
    // One the kernel does not describe stands for itself.
    cores.insert(core.empty() ? "processor " + std::to_string(processor)
                              : read_system_line(topology + "/physical_package_id") + ":" + core);
  }
  int count = std::max(1, static_cast<int>(cores.size()));
  if (const double quota = processor_quota(root); quota > 0)
    count = std::clamp(static_cast<int>(std::ceil(std::min(quota, 1e6))), 1, count);
  return count;
}

int default_thread_count() {
  return default_thread_count(usable_processors(), "/");
}

int thread_count_or_default(int wanted) {
  return wanted > 0 ? wanted : default_thread_count();
}

void spread_over_memory_nodes(void* memory, std::size_t bytes) {
  constexpr int kInterleave = 3;  // MPOL_INTERLEAVE
  static const std::vector<int> nodes =
      parse_processor_list(read_system_line("/sys/devices/system/node/has_memory"));
  if (nodes.size() < 2 || bytes == 0) return;
  constexpr int kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(static_cast<std::size_t>(nodes.back() / kBits + 1));
  for (const int node : nodes)
    mask[static_cast<std::size_t>(node / kBits)] |= 1ul << (node % kBits);
  static_cast<void>(
      ::syscall(SYS_mbind, memory, bytes, kInterleave, mask.data(), mask.size() * kBits + 1, 0));
}

}  // namespace moeflux
