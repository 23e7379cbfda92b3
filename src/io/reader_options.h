// How a reader is made. The defaults suit expert records on a solid-state disk.
#pragma once

#include <cstddef>

#include "io/transfer.h"

namespace moeflux {

enum class ReaderKind {
  Auto,   // io_uring where the kernel allows it, else the pool
  Uring,  // io_uring, or an Error that says why not
  Pool,   // threads
};

struct ReaderOptions {
  ReaderKind kind = ReaderKind::Auto;
  int queue_depth = 32;  // kernel reads in flight; 1..4096
  int threads = 16;      // of the pool, which has at most this many reads in flight; 1..256
  bool direct = true;    // past the page cache, where the filesystem allows it
  int max_retries = 3;   // of a read that failed with an error that may pass
  // Bytes of bounce buffers, for reads whose pointer and offset disagree. At least one buffer is
  // made.
  std::size_t bounce_bytes = std::size_t{8} << 20;
  ResultFilter filter = {};  // for tests
};

// Throws Error(BadInput) naming the option.
void validate(const ReaderOptions& options);

}  // namespace moeflux
