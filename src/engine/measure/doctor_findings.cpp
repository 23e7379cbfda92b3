// What a report of the doctor means: every rule looks at one thing and adds at most one finding.
#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "base/memory_budget.h"
#include "engine/measure/doctor.h"
#include "io/uring_reader.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kEnoughLockedMemory = std::uint64_t{64} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

using Findings = std::vector<Finding>;

std::string speed_text(double bytes_per_second) {
  return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
}

void check_model(const DoctorReport& r, Findings& out) {
  if (!r.model_error.empty()) {
    out.push_back({Severity::Error, "model_unusable",
                   "the model cannot be opened: " + r.model_error,
                   "the drive was measured with a test file instead"});
  }
  if (r.model && r.model->expert_bytes > 0 && !r.model->expert_is_one_record) {
    out.push_back(
        {Severity::Note, "experts_scattered",
         fmt::format("each expert lies in several places of the {} files", r.model->layout),
         "moeflux convert makes a container in which an expert is one read"});
  }
}

void check_uring(const DoctorReport& r, Findings& out) {
  if (r.uring == UringStatus::Used) return;
  Finding finding{Severity::Warning, "io_uring_unavailable",
                  describe_uring(r.uring, r.uring_error) + "; a pool of threads reads instead", ""};
  const KernelDescription& kernel = r.machine.kernel;
  if (r.uring == UringStatus::Forbidden && kernel.uring_disabled.value_or(0) > 0) {
    finding.id = "io_uring_sysctl";
    finding.what = fmt::format(
        "io_uring is switched off by sysctl kernel.io_uring_disabled = {}; a pool of threads reads "
        "instead",
        *kernel.uring_disabled);
    finding.advice = "sysctl -w kernel.io_uring_disabled=0 allows it to everybody on this machine";
  } else if (r.uring == UringStatus::Forbidden && kernel.seccomp) {
    finding.id = "io_uring_seccomp";
    finding.what =
        "io_uring is forbidden by a seccomp filter, as containers have one by default; a pool of "
        "threads reads instead";
    finding.advice =
        "allow io_uring_setup, io_uring_enter and io_uring_register in the profile of the "
        "container";
  } else if (r.uring == UringStatus::NoMemory) {
    finding.advice = "raise the limit of locked memory (ulimit -l)";
  }
  out.push_back(std::move(finding));
}

bool is_remote(std::string_view file_system) {
  constexpr std::array kRemote = {"nfs", "cifs", "smb2", "9p", "virtiofs", "fuse", "ceph"};
  for (const char* name : kRemote) {
    if (file_system == name) return true;
  }
  return false;
}

void check_storage(const StorageDescription& s, bool examined, Findings& out) {
  const bool in_memory = s.file_system == "tmpfs" || s.file_system == "ramfs";
  if (in_memory) {
    out.push_back(
        {Severity::Note, "files_in_memory",
         fmt::format("the files lie in memory ({}): what was measured is no drive", s.file_system),
         "name a directory on the drive that is to hold models"});
  } else if (is_remote(s.file_system)) {
    out.push_back(
        {Severity::Warning, "files_remote",
         fmt::format("the files come through {}, from another machine or the host", s.file_system),
         "a local solid-state drive is usually several times faster"});
  }
  if (examined && !s.alignment.direct() && !in_memory) {
    out.push_back({Severity::Warning, "no_direct_io",
                   fmt::format("{} has no direct I/O here: experts pass through the page cache, "
                               "which takes memory and time, and speeds are those of that cache",
                               s.file_system.empty() ? "the file system" : s.file_system),
                   "put the model on ext4 or xfs"});
  }
  if (s.drive.rotational.value_or(false)) {
    out.push_back({Severity::Warning, "hard_disk", "the drive is a hard disk",
                   "experts are read at random places: use a solid-state drive"});
  }
  if (!s.drive.best_link.empty()) {
    out.push_back({Severity::Warning, "slow_link",
                   fmt::format("{} is connected with {}, but could do {}", s.drive.name,
                               s.drive.link, s.drive.best_link),
                   "another slot may be faster; some drives slow down only while idle"});
  }
}

void check_disk(const DoctorReport& r, Findings& out) {
  if (!r.disk_error.empty()) {
    out.push_back(
        {Severity::Error, "disk_unreadable", "the drive was not measured: " + r.disk_error, ""});
    return;
  }
  const DiskSpeed* best = r.best_disk();
  if (best == nullptr) return;
  if (r.test_file_bytes > 0) {
    out.push_back({Severity::Note, "test_file",
                   "what was read had just been written: caches of the drive, or of the host of a "
                   "virtual machine, may make it look faster than a large model",
                   "name a model to measure its own files"});
  }
  const double rate = best->speed.bytes_per_second();
  if (rate < 5e8) {
    out.push_back({Severity::Warning, "slow_disk",
                   fmt::format("the drive delivers {} at best", speed_text(rate)),
                   "models whose experts do not fit into memory will be slow on it"});
  }
  double uring = 0, pool = 0;
  for (const DiskSpeed& each : r.disk) {
    double& best_of = each.reader == ReaderKind::Uring ? uring : pool;
    best_of = std::max(best_of, each.speed.bytes_per_second());
  }
  if (uring > 0 && pool > 1.2 * uring) {
    out.push_back({Severity::Note, "pool_faster",
                   fmt::format("the pool of threads reads {}, io_uring only {}", speed_text(pool),
                               speed_text(uring)),
                   ""});
  }
}

void check_memory(const DoctorReport& r, Findings& out) {
  const MemoryLimits& memory = r.machine.memory;
  const std::uint64_t usable = usable_memory(memory);
  if (memory.cgroup.limit() < memory.total) {
    out.push_back({Severity::Note, "cgroup_memory",
                   fmt::format("a control group allows {} of the {} of this machine",
                               format_bytes(memory.cgroup.limit()), format_bytes(memory.total)),
                   ""});
  }
  if (memory.address_space_left < memory.available || memory.data_left < memory.available) {
    out.push_back({Severity::Warning, "rlimit_memory",
                   fmt::format("a resource limit leaves {} of memory", format_bytes(usable)),
                   "raise it (ulimit -v, ulimit -d)"});
  }
  if (usable < 2 * kGiB) {
    out.push_back({Severity::Warning, "little_memory",
                   fmt::format("only {} of memory may be used", format_bytes(usable)),
                   "end other programs, or allow the control group more"});
  }
  if (!r.machine.pressure) {
    out.push_back({Severity::Note, "no_psi",
                   "the kernel does not measure memory pressure: the expert cache reacts only to "
                   "memory running out",
                   "boot with psi=1"});
  } else if (r.machine.pressure->some.avg10 >= 5) {
    out.push_back({Severity::Warning, "memory_pressure",
                   fmt::format("tasks waited for memory {:.0f} % of the last ten seconds",
                               r.machine.pressure->some.avg10),
                   "end other programs, or use a smaller --ram"});
  }
  if (r.machine.kernel.huge_pages == "never") {
    out.push_back({Severity::Warning, "no_huge_pages",
                   "transparent huge pages are off: a read into small pages becomes many requests",
                   "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  }
}

void check_cpu(const DoctorReport& r, Findings& out) {
  const CpuDescription& cpu = r.machine.cpu;
  if (r.machine.kernel.architecture == "x86_64" && cpu.features == "baseline") {
    out.push_back({Severity::Warning, "no_avx2",
                   "the processor has no AVX2, or it is hidden from this virtual machine",
                   "give the virtual machine the host's processor model"});
  }
  if (cpu.quota > 0 && cpu.quota < cpu.n_usable) {
    out.push_back({Severity::Note, "cgroup_cpu",
                   fmt::format("a control group allows {:.1f} of {} processors at a time",
                               cpu.quota, cpu.n_usable),
                   fmt::format("-t {:.0f} avoids being stopped in the middle of a token",
                               std::max(1.0, cpu.quota))});
  }
  if (cpu.governor == "powersave") {
    out.push_back({Severity::Note, "cpu_governor", "the processor is set to save power",
                   "the governor \"performance\" may be faster"});
  }
  if (cpu.n_nodes > 1) {
    out.push_back({Severity::Note, "numa",
                   fmt::format("memory is spread over {} nodes", cpu.n_nodes),
                   "numactl --interleave=all uses the memory channels of all of them"});
  }
}

void check_limits(const DoctorReport& r, Findings& out) {
  const ResourceLimits& limits = r.machine.limits;
  const std::uint64_t n_files = r.model ? r.model->files.size() : 0;
  if (limits.open_files < 3 * n_files + 64) {  // each is opened up to three times
    out.push_back({Severity::Error, "open_files",
                   fmt::format("{} open files are allowed, too few for a model of {} files",
                               limits.open_files, n_files),
                   "raise the limit (ulimit -n)"});
  }
  if (r.uring == UringStatus::Used && limits.locked_memory < kEnoughLockedMemory) {
    out.push_back({Severity::Note, "locked_memory",
                   fmt::format("only {} may be locked: the expert cache cannot be registered with "
                               "io_uring, which costs some processor time",
                               format_bytes(limits.locked_memory)),
                   "raise the limit (ulimit -l)"});
  }
}

}  // namespace

std::vector<Finding> find_problems(const DoctorReport& report) {
  Findings found;
  check_model(report, found);
  check_uring(report, found);
  for (const StorageDescription& storage : report.storage)
    check_storage(storage, report.disk_error.empty(), found);
  check_disk(report, found);
  check_memory(report, found);
  check_cpu(report, found);
  check_limits(report, found);
  std::stable_sort(found.begin(), found.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return found;
}

}  // namespace moeflux
