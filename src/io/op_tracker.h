// Which ops are under way: counts the pieces of each, keeps its first error, and queues its one
// result. Not thread-safe: a reader with threads guards it with its own lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/async_reader.h"
#include "io/read_plan.h"
#include "io/ring_queue.h"

namespace moeflux {

class OpTracker {
 public:
  // Opens an op and puts its pieces into `waiting`. An op that cannot be read is finished at once.
  void add(const ReadOp& op, const FileSet& files, const PlanLimits& limits,
           RingQueue<Piece>& waiting);

  // True when a piece of the op has failed: reading its other pieces would be wasted.
  bool has_failed(std::uint32_t op) const { return ops_[op].error != 0; }

  void finish_piece(std::uint32_t op, int error);

  // Fails every waiting piece.
  void cancel(RingQueue<Piece>& waiting);

  bool has_results() const { return !results_.empty(); }
  std::size_t take_results(std::span<ReadResult> results, ReaderStats& stats);
  std::size_t in_flight() const { return n_open_ + results_.size(); }

 private:
  struct Op {
    std::uint64_t tag = 0;
    std::uint64_t bytes = 0;
    std::size_t pieces_left = 0;
    int error = 0;
  };

  std::uint32_t open(const ReadOp& op);

  std::vector<Op> ops_;
  std::vector<std::uint32_t> free_ops_;
  RingQueue<ReadResult> results_;
  std::size_t n_open_ = 0;
};

}  // namespace moeflux
