// The border of the library: no exception leaves it. Every function of the C API runs its body in
// guarded(), which turns what it throws into a status and a message that this thread can ask for.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <moeflux/moeflux.h>

namespace moeflux::capi {

// For what only the C API can tell apart; everything else throws moeflux::Error.
class StatusError : public std::runtime_error {
 public:
  StatusError(mf_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  mf_status status() const { return status_; }

 private:
  mf_status status_;
};

template <class... Args>
[[noreturn]] void fail_with(mf_status status, fmt::format_string<Args...> format, Args&&... args) {
  throw StatusError(status, fmt::format(format, std::forward<Args>(args)...));
}

void clear_error() noexcept;
mf_status keep_error() noexcept;  // inside of a catch block: of the exception being handled
mf_status last_status() noexcept;
const char* last_message() noexcept;

template <class Body>
mf_status guarded(Body&& body) noexcept {
  clear_error();
  try {
    body();
    return MF_OK;
  } catch (...) {
    return keep_error();
  }
}

// For functions whose result is no status.
template <class T, class Body>
T guarded_value(T on_failure, Body&& body) noexcept {
  T value = on_failure;
  const mf_status status = guarded([&] { value = body(); });
  return status == MF_OK ? value : on_failure;
}

template <class T>
T& need(T* pointer, const char* name) {
  if (pointer == nullptr) fail_with(MF_ERROR_NULL_ARGUMENT, "{} is NULL", name);
  return *pointer;
}

}  // namespace moeflux::capi
