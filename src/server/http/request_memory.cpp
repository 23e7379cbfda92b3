#include "server/http/request_memory.h"

#include <algorithm>

#include <fmt/format.h>
#include <malloc.h>

#include "base/memory_budget.h"
#include "server/http/body_price.h"
#include "server/http/http.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// From here on it pays to look for freed memory that the allocator keeps.
constexpr std::uint64_t kLargeBytes = 4 * kMiB;

void give_back_to_system() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace

std::uint64_t RequestMemory::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

bool RequestMemory::take(std::uint64_t bytes, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto fits = [&] { return bytes <= bytes_ - std::min(bytes_, used_); };
  if (!fits() && !given_back_.wait_for(lock, patience, fits)) return false;
  used_ += bytes;
  return true;
}

void RequestMemory::give_back(std::uint64_t bytes) {
  // First, so that nobody gets what the allocator still holds.
  if (bytes >= kLargeBytes) give_back_to_system();
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  given_back_.notify_all();
}

void MemoryShare::grow(std::uint64_t bytes, std::chrono::milliseconds patience) {
  if (memory_ == nullptr) return;
  const std::uint64_t most = memory_->most_for_one();
  if (bytes > most - std::min(most, bytes_)) {
    throw HttpError(413, "invalid_request_error",
                    fmt::format("the request would take {} of memory, and one may take {}; shorten "
                                "it, or start the server with a larger --ram",
                                format_needed_bytes(bytes_ + bytes), format_bytes(most)))
        .with_number("needed_bytes", static_cast<std::int64_t>(bytes_ + bytes))
        .with_number("allowed_bytes", static_cast<std::int64_t>(most));
  }
  if (!memory_->take(bytes, patience)) {
    throw HttpError(503, "unavailable_error",
                    fmt::format("the request takes {} of memory, and others have what is for "
                                "requests; try again later",
                                format_needed_bytes(bytes_ + bytes)))
        .with_header("Retry-After", "5");
  }
  bytes_ += bytes;
}

bool MemoryShare::grow_to(std::uint64_t bytes) {
  if (memory_ == nullptr || bytes <= bytes_) return true;
  if (!memory_->take(bytes - bytes_, {})) return false;
  bytes_ = bytes;
  return true;
}

void MemoryShare::shrink_to(std::uint64_t bytes) {
  if (bytes >= bytes_) return;
  memory_->give_back(bytes_ - bytes);
  bytes_ = bytes;
}

ServerMemory server_memory(std::uint64_t ceiling, std::int64_t context_length) {
  const auto share = [&](std::uint64_t part, std::uint64_t least, std::uint64_t most) {
    return std::clamp(ceiling / part, std::min(least, ceiling / (part / 4)), most);
  };
  const std::uint64_t prompt = static_cast<std::uint64_t>(context_length) * kPriceOfValue;
  return {.request_bytes = std::max(share(32, 64 * kMiB, 512 * kMiB), prompt / 2 * 3),
          .grammar_bytes = share(64, 32 * kMiB, 128 * kMiB)};
}

void keep_heap_small() {
#ifdef __GLIBC__
  ::mallopt(M_ARENA_MAX, 2);
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(kMiB));
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(kMiB));
#endif
}

}  // namespace moeflux
