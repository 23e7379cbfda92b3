// How a reader is made: the one that suits this machine, unless options say otherwise.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "io/async_reader.h"
#include "io/transfer.h"

namespace moeflux {

enum class ReaderKind {
  Auto,   // io_uring where the kernel allows it, else the pool
  Uring,  // io_uring, or an Error that says why not
  Pool,   // threads
};

// The defaults suit expert records on a solid-state disk.
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

// Opens `paths`; ReadOp::file is an index into them. Throws Error when a file cannot be opened,
// when an option is out of range, or when options.kind is Uring and the kernel refuses it. info()
// of the reader says what was chosen and why.
std::unique_ptr<AsyncReader> make_reader(const std::vector<std::string>& paths,
                                         const ReaderOptions& options = {});

}  // namespace moeflux
