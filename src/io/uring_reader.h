// Reads through io_uring: no threads of its own, many reads in flight for one system call. Reads
// that were waiting for room in the queue start when the caller next submits or waits, so a queue
// depth that covers one request keeps the drive busy while the caller computes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "io/async_reader.h"
#include "io/make_reader.h"
#include "io/op_tracker.h"
#include "io/transfer.h"

struct io_uring;
struct io_uring_sqe;

namespace moeflux {

struct RingCloser {
  void operator()(io_uring* ring) const;
};
using UniqueRing = std::unique_ptr<io_uring, RingCloser>;

// An io_uring instance, or why the kernel gives none.
struct UringSetup {
  UniqueRing ring;  // null unless status is Used
  UringStatus status = UringStatus::Failed;
  int error = 0;      // errno of the refusal
  int n_entries = 0;  // reads that can be in flight
};

UringSetup open_uring(int n_entries);

// "io_uring is forbidden here (Operation not permitted): containers block it by default, ..."
std::string describe_uring(UringStatus status, int error);

class UringReader final : public AsyncReader {
 public:
  // `setup` must hold a ring.
  UringReader(FileSet files, const ReaderOptions& options, UringSetup setup);
  ~UringReader() override;

  void submit(std::span<const ReadOp> ops) override;
  std::size_t wait(std::span<ReadResult> results, bool block) override;
  std::size_t in_flight() const override { return tracker_.in_flight(); }
  void cancel_waiting() override { tracker_.cancel(waiting_); }
  int register_memory(std::span<std::byte> region) override;
  FileAlignment alignment(int file) const override { return files_.alignment(file); }
  ReaderInfo info() const override;
  ReaderStats stats() const override { return stats_; }

 private:
  struct Slot {
    Transfer transfer;
    int bounce = -1;
  };
  struct Region {  // memory the kernel has pinned, by the index it knows it by
    std::byte* begin;
    std::byte* end;
    int index;
  };

  void register_files();
  int register_chunk(std::span<std::byte> chunk);
  int find_region(const iovec& part) const;  // its index, or -1
  void start_waiting();
  bool has_room_for(const Piece& piece) const;
  void ask_kernel(int slot);
  void prepare(io_uring_sqe* entry, const KernelRead& read) const;
  void enter(unsigned wait_for);
  void reap();
  void finish(int slot);
  void drain() noexcept;

  FileSet files_;
  int max_retries_;
  ResultFilter filter_;
  int depth_;
  Scratch scratch_;
  std::vector<Slot> slots_;
  std::vector<int> free_slots_;
  std::vector<int> free_bounces_;
  RingQueue<Piece> waiting_;
  OpTracker tracker_;
  ReaderStats stats_;
  UniqueRing ring_;  // after what the kernel may write to
  bool stopping_ = false;
  bool files_registered_ = false;
  int regions_error_ = 0;        // why no memory can be registered
  std::vector<Region> regions_;  // by address
  std::uint64_t registered_bytes_ = 0;
};

}  // namespace moeflux
