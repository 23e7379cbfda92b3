// XXH3-64 (seed 0): the checksum of everything in a container.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace moeflux {

std::uint64_t checksum(std::span<const std::byte> bytes);
std::uint64_t checksum(std::string_view text);

// The same over bytes that come in pieces.
class ChecksumStream {
 public:
  ChecksumStream();

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::uint64_t value() const;  // of all bytes so far

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// 16 hexadecimal digits, as manifests have them.
std::string checksum_text(std::uint64_t value);
// False when it is not exactly that.
bool parse_checksum(std::string_view text, std::uint64_t& value);

}  // namespace moeflux
