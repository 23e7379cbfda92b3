#include "base/error.h"

namespace moeflux {

void assertion_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(
      fmt::format("internal error: {} ({}:{}); please report this", condition, file, line));
}

}  // namespace moeflux
