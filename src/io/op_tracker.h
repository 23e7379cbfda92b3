// The parts that every reader is made of: a queue of pieces, the ops under way, and scratch memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "io/async_reader.h"
#include "io/file_set.h"
#include "io/transfer.h"

namespace moeflux {

// A first-in first-out queue that keeps its memory, so that a steady state allocates nothing.
template <class T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const T& front() const { return items_[head_]; }

  void push(T item) {
    if (size_ == items_.size()) grow();
    items_[(head_ + size_) & (items_.size() - 1)] = std::move(item);
    ++size_;
  }

  T pop() {
    T item = std::move(items_[head_]);
    head_ = (head_ + 1) & (items_.size() - 1);
    --size_;
    return item;
  }

 private:
  void grow() {
    std::vector<T> larger(items_.empty() ? 64 : 2 * items_.size());
    for (std::size_t i = 0; i < size_; ++i)
      larger[i] = std::move(items_[(head_ + i) & (items_.size() - 1)]);
    items_ = std::move(larger);
    head_ = 0;
  }

  std::vector<T> items_;  // its size is a power of two
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

// Which ops are under way: counts the pieces of each, keeps its first error, and queues its one
// result. Not thread-safe: a reader with threads guards it with its own lock.
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

inline constexpr std::size_t kBounceBytes = std::size_t{512} << 10;

// In place, the kernel gets whole ops; the limit keeps one below the largest read it accepts (2 GiB
// less a page).
inline constexpr PlanLimits kPlanLimits{.bounce_bytes = kBounceBytes,
                                        .piece_bytes = std::size_t{1} << 30};

// The aligned memory of a reader that is not its caller's: two edge blocks for each read in flight,
// and some bounce buffers shared by them.
class Scratch {
 public:
  Scratch(const FileSet& files, int n_slots, std::size_t bounce_bytes)
      : edge_bytes_(2 * files.largest_block()) {
    if (files.n_direct() == 0) return;  // buffered reads need none
    edges_ = AlignedBuffer(edge_bytes_ * static_cast<std::size_t>(n_slots));
    const std::size_t n_bounces =
        std::clamp<std::size_t>(bounce_bytes / kBounceBytes, 1, static_cast<std::size_t>(n_slots));
    bounces_ = HugeBuffer(n_bounces * kBounceBytes);
  }

  std::span<std::byte> edges(int slot) const {
    if (edges_.size() == 0) return {};
    return {edges_.data() + static_cast<std::size_t>(slot) * edge_bytes_, edge_bytes_};
  }
  std::span<std::byte> bounce(int index) const {
    return {bounces_.data() + static_cast<std::size_t>(index) * kBounceBytes, kBounceBytes};
  }
  int n_bounces() const { return static_cast<int>(bounces_.size() / kBounceBytes); }
  std::size_t bytes() const { return edges_.size() + bounces_.size(); }

 private:
  std::size_t edge_bytes_;
  AlignedBuffer edges_;
  HugeBuffer bounces_;
};

}  // namespace moeflux
