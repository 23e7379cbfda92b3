// Many positional reads in flight at once, each reported as soon as it is complete.
//
// Contract: every submitted op is reported exactly once, with all of its bytes or with an error;
// never with fewer bytes, never with zeros in their place. Any offset, length and pointer is
// correct. A read is fastest when it needs no copy: see FileAlignment. One thread at a time calls a
// reader. It must not exit while it has ops in flight. The memory of an op belongs to the reader
// until the op is reported or the reader is destroyed; the destructor waits for what has been
// started.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "io/file_set.h"

namespace moeflux {

// The error of an op whose file ends before its last byte. No errno has this value.
inline constexpr int kEndOfFile = -1;

// Text for ReadResult::error: an errno or kEndOfFile.
std::string describe_read_error(int error);

struct ReadOp {
  int file = 0;  // index into the paths the reader was made with
  std::uint64_t offset = 0;
  std::span<std::byte> out;
  std::uint64_t tag = 0;  // given back in the result; need not be unique
};

struct ReadResult {
  std::uint64_t tag = 0;
  int error = 0;  // 0, an errno or kEndOfFile
  std::uint64_t bytes =
      0;  // the length of the op, or 0 when it failed; the memory is then undefined
};

struct ReaderStats {
  std::uint64_t ops = 0;           // reported
  std::uint64_t failed_ops = 0;    // of these, with an error
  std::uint64_t bytes = 0;         // of reported ops without error
  std::uint64_t kernel_reads = 0;  // reads the kernel was asked for, repetitions included
  std::uint64_t kernel_bytes = 0;  // what they returned: more than `bytes` by block padding
  std::uint64_t copied_bytes =
      0;                        // moved by the CPU because offset, length or pointer was unaligned
  std::uint64_t retries = 0;    // reads repeated after EINTR, EAGAIN or a transient error
  std::uint64_t fallbacks = 0;  // reads that direct I/O refused or could not finish
  std::uint64_t wait_ns = 0;    // time the caller spent blocked in wait()
  ReaderStats& operator+=(const ReaderStats& other);
};

// Why a reader does or does not use io_uring.
enum class UringStatus {
  Used,
  NotAsked,     // the pool was chosen by option
  NotInKernel,  // the kernel is too old or built without it
  Forbidden,    // seccomp (containers) or kernel.io_uring_disabled
  NoMemory,     // the limit of locked memory is too low for the rings
  Failed,       // any other refusal; see the errno
};

struct ReaderInfo {
  std::string name;  // "uring" or "pool"
  UringStatus uring = UringStatus::NotAsked;
  int uring_errno = 0;
  int queue_depth = 0;  // kernel reads in flight at most
  int direct_files = 0;
  int buffered_files = 0;
  bool files_registered = false;
  std::uint64_t registered_bytes = 0;  // of the caller's memory
  std::uint64_t memory_bytes = 0;      // the reader's own buffers, to be counted in a budget
};

class AsyncReader {
 public:
  AsyncReader() = default;
  virtual ~AsyncReader() = default;
  AsyncReader(const AsyncReader&) = delete;
  AsyncReader& operator=(const AsyncReader&) = delete;

  // Takes any number of ops; those beyond the queue depth wait inside. A bad file index or a range
  // that no file can have is reported like any other failed read.
  virtual void submit(std::span<const ReadOp> ops) = 0;

  // Moves finished ops into `results` and returns how many: at least one if `block` and any op is
  // in flight, except when `results` is empty. Also starts ops that were waiting, so call it now
  // and then while computing.
  virtual std::size_t wait(std::span<ReadResult> results, bool block) = 0;
  std::size_t poll(std::span<ReadResult> results) { return wait(results, false); }

  // Ops submitted and not yet reported.
  virtual std::size_t in_flight() const = 0;

  // Ops that have not been started fail with ECANCELED; they are still reported.
  virtual void cancel_waiting() = 0;

  // Tells the reader that many reads will go into this memory, which must outlive it. May pin (and
  // so commit) all of it. Returns 0 or the errno of a refusal, which costs some CPU time per read
  // and nothing else.
  virtual int register_memory(std::span<std::byte> region) = 0;

  // Where reads of this file need no copy.
  virtual FileAlignment alignment(int file) const = 0;
  virtual ReaderInfo info() const = 0;
  virtual ReaderStats stats() const = 0;
};

}  // namespace moeflux
