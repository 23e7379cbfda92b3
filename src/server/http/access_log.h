// What there is to say of a request once it has been answered.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace moeflux {

// What the handler knows. Empty where it does not apply.
struct AnswerNotes {
  std::string model = {};
  std::optional<std::int64_t> prompt_tokens = {}, cached_tokens = {}, completion_tokens = {};
  std::string error = {};  // why it failed
};

struct AccessRecord {
  std::chrono::system_clock::time_point time = {};  // of its first byte
  std::string client = {};                          // "192.0.2.1", "unix"
  std::string method = {}, path = {};               // as the client wrote them, decoded; untrusted
  int status = 0;
  bool was_left = false;  // by the client, before the answer was complete
  std::uint64_t bytes_in = 0, bytes_out = 0;
  double seconds = 0;
  AnswerNotes notes = {};
};

using AccessLog = std::function<void(const AccessRecord&)>;

}  // namespace moeflux
