// An io_uring instance, or why the kernel gives none.
#pragma once

#include <memory>

#include "io/async_reader.h"

struct io_uring;

namespace moeflux {

struct RingCloser {
  void operator()(io_uring* ring) const;
};
using UniqueRing = std::unique_ptr<io_uring, RingCloser>;

struct UringSetup {
  UniqueRing ring;  // null unless status is Used
  UringStatus status = UringStatus::Failed;
  int error = 0;      // errno of the refusal
  int n_entries = 0;  // reads that can be in flight
};

UringSetup open_uring(int n_entries);

// "io_uring is forbidden here (Operation not permitted): containers block it by default, ..."
std::string describe_uring(UringStatus status, int error);

}  // namespace moeflux
