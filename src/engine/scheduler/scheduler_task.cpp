#include "engine/scheduler/scheduler_task.h"

#include <algorithm>
#include <new>

namespace moeflux {

std::int64_t Job::n_ready() const {
  const std::int64_t here = session->length();
  const auto next = std::upper_bound(request.keep_at.begin(), request.keep_at.end(), here);
  const auto n_pending = static_cast<std::int64_t>(pending().size());
  return next == request.keep_at.end() ? n_pending : std::min(n_pending, *next - here);
}

bool Job::keeps_here() const {
  return std::binary_search(request.keep_at.begin(), request.keep_at.end(), session->length());
}

void Job::emit(const JobEvent& event) {
  if (!sink) return;
  try {
    sink(id, event);
  } catch (...) {  // whoever listened is gone: nobody is left to tell
    sink = {};
    cancelled = true;
  }
}

JobEnded failed(const std::exception& cause) {
  JobEnded how{.reason = StopReason::Cancelled};
  if (const auto* error = dynamic_cast<const Error*>(&cause)) {
    how.error = *error;
  } else if (dynamic_cast<const std::bad_alloc*>(&cause) != nullptr) {
    how.error = Error(Errc::OutOfMemory, "the system has no memory left");
  } else {
    how.error = Error(Errc::Unsupported, cause.what());
  }
  return how;
}

double Job::lap() {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - since).count();
  since = now;
  return seconds;
}

}  // namespace moeflux
