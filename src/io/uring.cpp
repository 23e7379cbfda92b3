#include "io/uring.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>
#include <liburing.h>

namespace moeflux {
namespace {

UringStatus classify(int error) {
  switch (error) {
    case ENOSYS:
    case EINVAL:
      return UringStatus::NotInKernel;
    case EPERM:
    case EACCES:
      return UringStatus::Forbidden;
    case ENOMEM:
      return UringStatus::NoMemory;
    default:
      return UringStatus::Failed;
  }
}

bool supports_reads(io_uring* ring) {
  io_uring_probe* probe = ::io_uring_get_probe_ring(ring);
  if (probe == nullptr) return false;
  const bool supported = io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                         io_uring_opcode_supported(probe, IORING_OP_READV) != 0 &&
                         io_uring_opcode_supported(probe, IORING_OP_READ_FIXED) != 0;
  ::io_uring_free_probe(probe);
  return supported;
}

}  // namespace

void RingCloser::operator()(io_uring* ring) const {
  ::io_uring_queue_exit(ring);
  delete ring;
}

UringSetup open_uring(int n_entries) {
  UringSetup setup;
  auto ring = std::make_unique<io_uring>();
  io_uring_params params{};
  params.flags = IORING_SETUP_CLAMP;
  const int rc =
      ::io_uring_queue_init_params(static_cast<unsigned>(n_entries), ring.get(), &params);
  if (rc < 0) {
    setup.error = -rc;
    setup.status = classify(-rc);
    return setup;
  }
  UniqueRing opened(ring.release());
  if (!supports_reads(opened.get())) {
    setup.error = ENOSYS;
    setup.status = UringStatus::NotInKernel;
    return setup;
  }
  setup.ring = std::move(opened);
  setup.status = UringStatus::Used;
  setup.n_entries =
      static_cast<int>(std::min<unsigned>(params.sq_entries, static_cast<unsigned>(n_entries)));
  return setup;
}

std::string describe_uring(UringStatus status, int error) {
  const std::string cause = std::generic_category().message(error);
  switch (status) {
    case UringStatus::Used:
      return "io_uring is used";
    case UringStatus::NotAsked:
      return "io_uring was not asked for";
    case UringStatus::NotInKernel:
      return fmt::format("io_uring is not in this kernel, or too old ({})", cause);
    case UringStatus::Forbidden:
      return fmt::format(
          "io_uring is forbidden here ({}): containers block it by default (allow io_uring_setup, "
          "io_uring_enter and "
          "io_uring_register in the seccomp profile), or sysctl kernel.io_uring_disabled is set",
          cause);
    case UringStatus::NoMemory:
      return fmt::format("io_uring could not lock its memory ({}): raise ulimit -l", cause);
    case UringStatus::Failed:
      break;
  }
  return fmt::format("io_uring could not be set up ({})", cause);
}

}  // namespace moeflux
