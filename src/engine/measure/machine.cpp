#include "engine/measure/machine.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <sys/utsname.h>

#include "base/cpu_features.h"
#include "base/file.h"
#include "base/processors.h"
#include "base/system_file.h"

namespace moeflux {
namespace {

constexpr int kMaxProcessors = 4096;

int count_listed(const std::string& root, std::string_view path) {
  return static_cast<int>(parse_processor_list(read_system_line(under_root(root, path))).size());
}

std::uint64_t parse_cache_size(std::string_view text) {  // "32768K"
  const bool kib = !text.empty() && text.back() == 'K';
  const auto value = parse_number(kib ? text.substr(0, text.size() - 1) : text);
  if (!value || *value > (std::uint64_t{1} << 40)) return 0;
  return *value * (kib ? 1024 : 1);
}

void count_processors(const std::string& root, CpuDescription& cpu) {
  const std::string base = under_root(root, "/sys/devices/system/cpu");
  std::set<std::string> sockets;
  std::set<std::pair<std::string, std::string>> cores;
  for (int i = 0; i < kMaxProcessors; ++i) {
    const std::string topology = base + "/cpu" + std::to_string(i) + "/topology";
    const std::string core = read_system_line(topology + "/core_id");
    if (core.empty()) {
      if (i >= cpu.n_threads) break;
      continue;  // a processor that is switched off
    }
    const std::string socket = read_system_line(topology + "/physical_package_id");
    sockets.insert(socket);
    cores.emplace(socket, core);
  }
  cpu.n_sockets = static_cast<int>(sockets.size());
  cpu.n_cores = static_cast<int>(cores.size());
}

std::uint64_t last_level_cache(const std::string& root) {
  const std::string base = under_root(root, "/sys/devices/system/cpu/cpu0/cache/index");
  for (int i = 0; i < 8; ++i) {
    const std::string cache = base + std::to_string(i);
    if (read_system_line(cache + "/level") == "3") {
      return parse_cache_size(read_system_line(cache + "/size"));
    }
  }
  return 0;
}

CpuDescription describe_cpu(const std::string& root) {
  CpuDescription cpu;
  cpu.name = cpu_model_name();
  cpu.features = describe(cpu_features());
  cpu.n_threads = count_listed(root, "/sys/devices/system/cpu/online");
  count_processors(root, cpu);
  cpu.n_usable = static_cast<int>(usable_processors().size());
  cpu.quota = processor_quota(root);
  cpu.n_nodes = count_listed(root, "/sys/devices/system/node/online");
  cpu.l3_bytes = last_level_cache(root);
  cpu.governor =
      read_system_line(under_root(root, "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  return cpu;
}

std::uint64_t soft_limit(std::string_view limits, std::string_view name) {
  for (const std::string_view line : split_lines(limits)) {
    if (line.substr(0, name.size()) != name) continue;
    const std::vector<std::string_view> words = split_words(line.substr(name.size()));
    return words.empty() ? kNoLimit : parse_number(words[0]).value_or(kNoLimit);
  }
  return kNoLimit;
}

KernelDescription describe_kernel(const std::string& root) {
  KernelDescription kernel;
  utsname name{};
  if (::uname(&name) == 0) {  // nodename, the host's, stays out
    kernel.release = name.release;
    kernel.architecture = name.machine;
  }
  kernel.uring_disabled =
      read_system_number(under_root(root, "/proc/sys/kernel/io_uring_disabled"));
  const std::string status = read_system_file(under_root(root, "/proc/self/status")).value_or("");
  kernel.seccomp = find_number(status, "Seccomp").value_or(0) == 2;
  kernel.huge_pages = selected_word(
      read_system_line(under_root(root, "/sys/kernel/mm/transparent_hugepage/enabled")));
  return kernel;
}

}  // namespace

std::string selected_word(std::string_view text) {
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos) return "";
  const std::size_t close = text.find(']', open);
  return close == std::string_view::npos ? ""
                                         : std::string(text.substr(open + 1, close - open - 1));
}

MachineDescription describe_machine(const std::string& root) {
  MachineDescription machine;
  machine.cpu = describe_cpu(root);
  machine.kernel = describe_kernel(root);
  const std::string limits = read_system_file(under_root(root, "/proc/self/limits")).value_or("");
  machine.limits.open_files = soft_limit(limits, "Max open files");
  machine.limits.locked_memory = soft_limit(limits, "Max locked memory");
  machine.limits.address_space = soft_limit(limits, "Max address space");
  machine.memory = read_memory_limits(root);
  machine.pressure = read_memory_pressure(root);
  return machine;
}

}  // namespace moeflux
