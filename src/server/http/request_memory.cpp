#include "server/http/request_memory.h"

#include <algorithm>

#include <fmt/format.h>
#include <malloc.h>

#include "base/memory_budget.h"
#include "server/http/http.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// From this size on it pays to search for freed memory that the allocator keeps.
constexpr std::uint64_t kLargeBytes = 4 * kMiB;

void return_to_system() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

// A value, and a member of an object besides its value, with what the allocator adds to each.
constexpr std::uint64_t kValueBytes = 48, kMemberBytes = 64;

// The length of a string from after its opening quote to its closing one.
std::size_t string_length(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return std::min(i, text.size());
}

}  // namespace

std::uint64_t RequestMemory::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

bool RequestMemory::take(std::uint64_t bytes, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto fits = [&] { return bytes <= bytes_ - std::min(bytes_, used_); };
  if (!fits() && !released_.wait_for(lock, patience, fits)) return false;
  used_ += bytes;
  return true;
}

void RequestMemory::release(std::uint64_t bytes) {
  // First, so that no other request is granted bytes that the allocator still holds.
  if (bytes >= kLargeBytes) return_to_system();
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  released_.notify_all();
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
  memory_->release(bytes_ - bytes);
  bytes_ = bytes;
}

std::uint64_t body_price(std::string_view text) {
  std::uint64_t n_values = 1, n_text = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"': {
        const std::size_t length = string_length(text.substr(i + 1));
        n_text += length;
        i += length + 1;
        break;
      }
      case ',':  // a value follows, and the first one of a list or an object follows its bracket
      case '[':
      case '{':
        ++n_values;
        break;
      default:
        break;
    }
  }
  return n_values * kPriceOfValue + n_text * kPriceOfTextByte;
}

std::uint64_t json_bytes(const Json& value) {
  std::uint64_t bytes = kValueBytes;
  if (value.is_string()) bytes += value.get_ref<const std::string&>().size();
  if (value.is_array()) {
    for (const Json& each : value) bytes += json_bytes(each);
  }
  if (value.is_object()) {
    for (const auto& [key, each] : value.items()) {
      bytes += kMemberBytes + key.size() + json_bytes(each);
    }
  }
  return bytes;
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
