#include "source/checksum.h"

#include <charconv>
#include <new>

#include <fmt/format.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the same functions, in the best instructions this processor has
#else
#include <xxhash.h>
#endif

namespace moeflux {

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t checksum(std::string_view text) {
  return checksum(std::as_bytes(std::span(text)));
}

ChecksumStream::ChecksumStream() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void ChecksumStream::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

void ChecksumStream::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

std::uint64_t ChecksumStream::value() const {
  return XXH3_64bits_digest(state_.get());
}

std::string checksum_text(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

bool parse_checksum(std::string_view text, std::uint64_t& value) {
  if (text.size() != 16) return false;
  for (const char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return std::from_chars(text.data(), text.data() + text.size(), value, 16).ec == std::errc();
}

}  // namespace moeflux
