#include "base/memory_budget.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

#include <unistd.h>

#include "base/error.h"

namespace moeflux {
namespace {

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  if (in >> value) return value;  // "max" is not a number: no limit
  return std::nullopt;
}

std::uint64_t mem_available() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (in >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(in, unit);
  }
  return UINT64_MAX;
}

// cgroup v2: the tightest limit on the way from this process's group to the root.
std::uint64_t cgroup_available() {
  std::ifstream in("/proc/self/cgroup");
  std::uint64_t best = UINT64_MAX;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string group = line.substr(3);
    while (true) {
      const std::string dir = "/sys/fs/cgroup" + group;
      const auto limit = read_number(dir + "/memory.max");
      const auto used = read_number(dir + "/memory.current");
      if (limit && used) best = std::min(best, *limit > *used ? *limit - *used : 0);
      const std::size_t slash = group.rfind('/');
      if (group.empty() || slash == std::string::npos) break;
      group.resize(slash);
    }
  }
  return best;
}

}  // namespace

MemoryBudget::Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)),
      tag_(std::move(other.tag_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

MemoryBudget::Reservation& MemoryBudget::Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    release();
    budget_ = std::exchange(other.budget_, nullptr);
    tag_ = std::move(other.tag_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void MemoryBudget::Reservation::release() {
  if (budget_ == nullptr) return;
  const std::lock_guard lock(budget_->mutex_);
  budget_->used_ -= bytes_;
  budget_->by_tag_[tag_] -= bytes_;
  budget_ = nullptr;
}

MemoryBudget::Reservation MemoryBudget::reserve(const std::string& tag, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > ceiling_ - used_) {
    fail(Errc::OutOfMemory, "{} needs {}, but only {} of the {} allowed are left", tag,
         format_bytes(bytes), format_bytes(ceiling_ - used_), format_bytes(ceiling_));
  }
  used_ += bytes;
  by_tag_[tag] += bytes;
  return {this, tag, bytes};
}

std::uint64_t MemoryBudget::available() const {
  const std::lock_guard lock(mutex_);
  return ceiling_ - used_;
}

std::map<std::string, std::uint64_t> MemoryBudget::by_tag() const {
  const std::lock_guard lock(mutex_);
  return by_tag_;
}

std::uint64_t available_memory() {
  return std::min(mem_available(), cgroup_available());
}

std::uint64_t process_memory() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

}  // namespace moeflux
