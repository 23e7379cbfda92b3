// Reads with threads that each block in one read: for kernels and containers without io_uring, and
// for the page cache, whose copies then run on several cores.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "io/async_reader.h"
#include "io/make_reader.h"
#include "io/op_tracker.h"
#include "io/transfer.h"

namespace moeflux {

class PoolReader final : public AsyncReader {
 public:
  // `why` and `why_errno` say why it is not io_uring that reads.
  PoolReader(FileSet files, const ReaderOptions& options, UringStatus why = UringStatus::NotAsked,
             int why_errno = 0);
  ~PoolReader() override;

  void submit(std::span<const ReadOp> ops) override;
  std::size_t wait(std::span<ReadResult> results, bool block) override;
  std::size_t in_flight() const override;
  void cancel_waiting() override;
  int register_memory(std::span<std::byte>) override { return EOPNOTSUPP; }
  FileAlignment alignment(int file) const override { return files_.alignment(file); }
  ReaderInfo info() const override;
  ReaderStats stats() const override;

 private:
  void work(int slot);
  void carry(Transfer& transfer, ReaderStats& stats) const;

  const FileSet files_;
  const int max_retries_;
  const ResultFilter filter_;
  const UringStatus why_;
  const int why_errno_;
  const int n_threads_;
  const Scratch scratch_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable work_, done_;
  RingQueue<Piece> waiting_;
  OpTracker tracker_;
  ReaderStats stats_;
  bool stopping_ = false;

  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace moeflux
