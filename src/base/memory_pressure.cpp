#include "base/memory_pressure.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/file.h"
#include "base/system_file.h"

namespace moeflux {
namespace {

// What a process gives back in one go must be worth the work.
constexpr std::uint64_t kLeastStep = std::uint64_t{16} << 20;

double parse_share(std::string_view text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && std::isfinite(value) ? std::clamp(value, 0.0, 100.0) : 0;
}

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=0", without its first word
PressureLine parse_line(const std::vector<std::string_view>& words) {
  PressureLine line;
  for (const std::string_view word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "avg10") line.avg10 = parse_share(value);
    if (key == "avg60") line.avg60 = parse_share(value);
    if (key == "avg300") line.avg300 = parse_share(value);
    if (key == "total") line.total_us = parse_number(value).value_or(0);
  }
  return line;
}

std::string pressure_file(const Cgroup& cgroup, const std::string& root) {
  if (cgroup.version == 2) {
    const std::string own = cgroup.directories[0] + "/memory.pressure";
    if (file_exists(own)) return own;
  }
  return under_root(root, "/proc/pressure/memory");
}

// Missing until three quarters of the reserve are free again; 0 while at least half of it is.
std::uint64_t missing(std::uint64_t left, std::uint64_t reserve) {
  if (left == kNoLimit || left >= reserve / 2) return 0;
  return reserve - reserve / 4 - left;
}

std::uint64_t spare(std::uint64_t left, std::uint64_t reserve) {
  if (left == kNoLimit) return kNoLimit;
  return left > reserve ? left - reserve : 0;
}

// Closes the window when it is long enough, and says whether it just showed too many stalls.
bool watch_stalls(const PressurePolicy& policy, PressureState& state, const MemorySample& sample) {
  if (!sample.some_us) return state.stalling = false;
  const double elapsed = sample.seconds - state.window_start;
  if (elapsed < policy.window_seconds) return false;
  const auto share = [&](std::uint64_t now, std::uint64_t before) {
    return now > before ? static_cast<double>(now - before) * 1e-6 / elapsed : 0;
  };
  const std::uint64_t full_us = sample.full_us.value_or(0);
  const bool scarce = sample.available < policy.machine_stall_below ||
                      sample.cgroup_left < policy.cgroup_stall_below;
  state.stalling = scarce && (share(*sample.some_us, state.window_some_us) >= policy.some_share ||
                              share(full_us, state.window_full_us) >= policy.full_share);
  state.window_start = sample.seconds;
  state.window_some_us = *sample.some_us;
  state.window_full_us = full_us;
  return state.stalling;
}

void start(const PressurePolicy& policy, PressureState& state, const MemorySample& sample) {
  state.started = true;
  state.window_start = sample.seconds;
  state.window_some_us = sample.some_us.value_or(0);
  state.window_full_us = sample.full_us.value_or(0);
  state.last_shrink = state.last_grow = sample.seconds;
  state.calm_seconds = policy.calm_seconds;
}

MemoryDecision shrink(const PressurePolicy& policy, PressureState& state, double now,
                      const CacheSize& cache, std::uint64_t bytes, MemoryCause cause) {
  // Kept also for a cache that cannot shrink: it must not grow.
  if (state.last_grow > state.last_shrink && now - state.last_grow < 2 * state.calm_seconds) {
    state.calm_seconds = std::min(state.calm_seconds * 2, policy.max_calm_seconds);
  }
  state.last_shrink = now;
  const std::uint64_t most = cache.current > cache.floor ? cache.current - cache.floor : 0;
  bytes = std::min(std::max(bytes, kLeastStep), most);
  if (bytes == 0) return {};
  return {MemoryAction::Shrink, bytes, cause};
}

MemoryDecision grow(const PressurePolicy& policy, PressureState& state, const MemorySample& sample,
                    const CacheSize& cache) {
  const double now = sample.seconds;
  if (state.stalling || cache.current >= cache.ceiling) return {};
  if (now - state.last_shrink < state.calm_seconds) return {};
  if (now - state.last_grow < policy.grow_interval_seconds) return {};
  const std::uint64_t room = cache.ceiling - cache.current;
  const std::uint64_t distance = cache.ceiling - std::min(cache.floor, cache.ceiling);
  const std::uint64_t step =
      std::max(kLeastStep, distance / static_cast<std::uint64_t>(policy.grow_divisor));
  // Never more than half of what is spare: others may be growing as well.
  const std::uint64_t free = std::min(spare(sample.available, policy.machine_reserve),
                                      spare(sample.cgroup_left, policy.cgroup_reserve)) /
                             2;
  const std::uint64_t bytes = std::min({room, step, free});
  if (bytes < std::min(kLeastStep, room)) return {};
  // After so long a calm, what the last mistake taught is out of date.
  if (now - state.last_shrink > 4 * policy.max_calm_seconds) {
    state.calm_seconds = policy.calm_seconds;
  }
  state.last_grow = now;
  return {MemoryAction::Grow, bytes, MemoryCause::None};
}

}  // namespace

std::optional<MemoryPressure> parse_memory_pressure(std::string_view text) {
  std::optional<MemoryPressure> pressure;
  PressureLine full;
  for (const std::string_view line : split_lines(text)) {
    const std::vector<std::string_view> words = split_words(line);
    if (words.empty()) continue;
    if (words[0] == "some") pressure = MemoryPressure{.some = parse_line(words), .full = {}};
    if (words[0] == "full") full = parse_line(words);
  }
  if (pressure) pressure->full = full;
  return pressure;
}

std::optional<MemoryPressure> read_memory_pressure(const std::string& root) {
  const auto text = read_system_file(pressure_file(find_cgroup("memory", root), root));
  return text ? parse_memory_pressure(*text) : std::nullopt;
}

PressurePolicy default_pressure_policy(const MemoryLimits& limits) {
  PressurePolicy policy;
  policy.machine_reserve = memory_reserve(limits.total);
  policy.machine_stall_below = limits.total / 4;
  policy.cgroup_stall_below = 0;
  if (limits.cgroup.limit() != kNoLimit) {
    policy.cgroup_reserve = memory_reserve(limits.cgroup.limit());
    policy.cgroup_stall_below = limits.cgroup.limit() / 4;
  }
  return policy;
}

MemoryDecision decide(const PressurePolicy& policy, PressureState& state,
                      const MemorySample& sample, const CacheSize& cache) {
  if (!state.started) start(policy, state, sample);
  const bool stalls = watch_stalls(policy, state, sample);
  const std::uint64_t of_machine = missing(sample.available, policy.machine_reserve);
  const std::uint64_t of_cgroup = missing(sample.cgroup_left, policy.cgroup_reserve);
  if (of_machine > 0 || of_cgroup > 0) {
    return shrink(policy, state, sample.seconds, cache, std::max(of_machine, of_cgroup),
                  of_cgroup > of_machine ? MemoryCause::Cgroup : MemoryCause::Machine);
  }
  if (stalls) {
    return shrink(policy, state, sample.seconds, cache,
                  cache.current / static_cast<std::uint64_t>(policy.stall_divisor),
                  MemoryCause::Stalls);
  }
  return grow(policy, state, sample, cache);
}

MemoryPressureMonitor::MemoryPressureMonitor(const PressurePolicy& policy, std::string root)
    : policy_(policy),
      meminfo_path_(under_root(root, "/proc/meminfo")),
      cgroup_(find_cgroup("memory", root)) {
  pressure_path_ = pressure_file(cgroup_, root);
}

MemoryDecision MemoryPressureMonitor::poll(double now, const CacheSize& cache) {
  if (sampled_ && now - sample_.seconds < kIntervalSeconds) return {};
  take_sample(now);
  return decide(policy_, state_, sample_, cache);
}

void MemoryPressureMonitor::take_sample(double now) {
  sampled_ = true;
  sample_ = {.seconds = now};
  if (const auto meminfo = read_system_file(meminfo_path_)) {
    sample_.available = available_in(*meminfo).value_or(kNoLimit);
  }
  sample_.cgroup_left = read_cgroup_memory(cgroup_).left;
  const auto text = read_system_file(pressure_path_);
  if (const auto pressure = text ? parse_memory_pressure(*text) : std::nullopt) {
    sample_.some_us = pressure->some.total_us;
    sample_.full_us = pressure->full.total_us;
  }
}

}  // namespace moeflux
