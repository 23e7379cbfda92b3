// The one exception type of the project, and the assertion for our own bugs.
//
// Throw Error for what ends an open or a request: its message says what is wrong, where (file,
// tensor, field) and what to do. Return a value for what is expected (a cache miss, a stop reason).
// Use MOEFLUX_ASSERT for what only a bug of ours can cause. The library never prints, exits or
// aborts on bad input.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace moeflux {

enum class Errc {
  BadInput,       // a file, template or request is malformed
  Unsupported,    // well-formed, but not something this engine runs
  NotFound,       // a file, tensor or name that must exist does not
  Io,             // the operating system refused or failed a read or write
  OutOfMemory,    // the memory the user allows is not enough
  LimitExceeded,  // a documented bound (context length, template output, ...) was reached
  Cancelled,
};

class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Errc code() const { return code_; }

 private:
  Errc code_;
};

template <class... Args>
[[noreturn]] void fail(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace moeflux

// Checked in every build: a wrong answer costs more than a branch.
#define MOEFLUX_ASSERT(condition)                                  \
  do {                                                             \
    if (!(condition)) [[unlikely]]                                 \
      ::moeflux::assertion_failed(#condition, __FILE__, __LINE__); \
  } while (false)
