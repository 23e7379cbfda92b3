#include "capi/guard.h"

#include <iterator>
#include <new>

#include "base/error.h"
#include "runtime/snapshot/snapshot.h"

namespace moeflux::capi {
namespace {

// The message may not fit into memory: then a fixed one takes its place.
struct LastError {
  mf_status status = MF_OK;
  std::string message;
  const char* fixed = nullptr;
};
thread_local LastError t_last_error;

mf_status keep(mf_status status, const char* message) noexcept {
  LastError& last = t_last_error;
  last.status = status;
  last.fixed = nullptr;
  try {
    last.message = message;
  } catch (...) {
    last.fixed = "out of memory";
  }
  return status;
}

mf_status status_of(Errc code) {
  constexpr mf_status kByErrc[] = {MF_ERROR_BAD_INPUT, MF_ERROR_UNSUPPORTED,   MF_ERROR_NOT_FOUND,
                                   MF_ERROR_IO,        MF_ERROR_OUT_OF_MEMORY, MF_ERROR_LIMIT,
                                   MF_ERROR_CANCELLED};
  static_assert(std::size(kByErrc) == static_cast<std::size_t>(Errc::Cancelled) + 1);
  return kByErrc[static_cast<std::size_t>(code)];
}

mf_status status_of(SnapshotFault fault) {
  switch (fault) {
    case SnapshotFault::OtherModel:
    case SnapshotFault::ShapeMismatch:
      return MF_ERROR_OTHER_MODEL;
    case SnapshotFault::LengthOverContext:
      return MF_ERROR_LIMIT;
    case SnapshotFault::OtherKvType:
    case SnapshotFault::Unsupported:
      return MF_ERROR_UNSUPPORTED;
    default:
      return MF_ERROR_BAD_SNAPSHOT;
  }
}

}  // namespace

void clear_error() noexcept {
  t_last_error.status = MF_OK;
}

mf_status keep_error() noexcept {
  try {
    throw;
  } catch (const StatusError& error) {
    return keep(error.status(), error.what());
  } catch (const SnapshotError& error) {
    return keep(status_of(error.fault()), error.what());
  } catch (const Error& error) {
    return keep(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return keep(MF_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return keep(MF_ERROR_INTERNAL, error.what());
  } catch (...) {
    return keep(MF_ERROR_INTERNAL, "a callback threw something that is no std::exception");
  }
}

mf_status last_status() noexcept {
  return t_last_error.status;
}

const char* last_message() noexcept {
  const LastError& last = t_last_error;
  if (last.status == MF_OK) return "";
  return last.fixed != nullptr ? last.fixed : last.message.c_str();
}

}  // namespace moeflux::capi

using namespace moeflux::capi;

mf_status mf_last_error(void) {
  return last_status();
}
const char* mf_last_error_message(void) {
  return last_message();
}

const char* mf_status_name(mf_status status) {
  static constexpr const char* kNames[] = {"ok",
                                           "bad input",
                                           "unsupported",
                                           "not found",
                                           "input/output error",
                                           "out of memory",
                                           "limit reached",
                                           "cancelled",
                                           "internal error",
                                           "null argument",
                                           "bad position",
                                           "needs rebuild",
                                           "broken sequence",
                                           "buffer too small",
                                           "busy",
                                           "bad snapshot",
                                           "snapshot of another model"};
  static_assert(std::size(kNames) == MF_ERROR_OTHER_MODEL + 1);
  return status >= MF_OK && status <= MF_ERROR_OTHER_MODEL ? kNames[status] : "unknown status";
}
