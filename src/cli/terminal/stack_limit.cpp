#include "cli/terminal/stack_limit.h"

#include <algorithm>
#include <cstddef>

#include <pthread.h>
#include <sys/resource.h>

namespace moeflux::cli {
namespace {

// An answer takes 48 KiB; templates, schemas and JSON that are nested as deeply as their limits
// allow take the rest.
constexpr std::size_t kNeeded = std::size_t{1} << 20;
constexpr std::size_t kUsual = std::size_t{8} << 20;

// New threads get what the limit was when the program started.
bool ensure_stack_of_threads() {
  pthread_attr_t attributes;
  if (::pthread_getattr_default_np(&attributes) != 0) return false;
  std::size_t bytes = 0;
  bool enough = ::pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes >= kNeeded;
  if (!enough) {
    enough = ::pthread_attr_setstacksize(&attributes, kUsual) == 0 &&
             ::pthread_setattr_default_np(&attributes) == 0;
  }
  ::pthread_attr_destroy(&attributes);
  return enough;
}

}  // namespace

std::string ensure_stack() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return "";
  if (limit.rlim_cur < kNeeded) {
    // The stack of this thread grows up to the limit as it is at that time.
    limit.rlim_cur = std::min<rlim_t>(kUsual, limit.rlim_max);
    if (limit.rlim_cur < kNeeded || ::setrlimit(RLIMIT_STACK, &limit) != 0)
      return "the stack is limited to less than 1 MiB; allow more: ulimit -s 8192";
  }
  return ensure_stack_of_threads() ? "" : "threads cannot have a stack of 8 MiB";
}

}  // namespace moeflux::cli
