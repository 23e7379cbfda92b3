#include "io/op_tracker.h"

#include <cerrno>

#include "base/error.h"

namespace moeflux {

std::uint32_t OpTracker::open(const ReadOp& op) {
  if (free_ops_.empty()) {
    free_ops_.push_back(static_cast<std::uint32_t>(ops_.size()));
    ops_.emplace_back();
  }
  const std::uint32_t id = free_ops_.back();
  free_ops_.pop_back();
  // The piece in advance is finished by add(), so that the op cannot end while its pieces are being
  // made.
  ops_[id] = {.tag = op.tag, .bytes = op.out.size(), .pieces_left = 1, .error = 0};
  ++n_open_;
  return id;
}

void OpTracker::add(const ReadOp& op, const FileSet& files, const PlanLimits& limits,
                    RingQueue<Piece>& waiting) {
  const std::uint32_t id = open(op);
  if (!files.contains(op.file)) return finish_piece(id, EBADF);
  if (out_of_range(op)) return finish_piece(id, kEndOfFile);
  for_each_piece(op, files.alignment(op.file), limits, [&](Piece piece) {
    piece.op = id;
    ++ops_[id].pieces_left;
    waiting.push(piece);
  });
  finish_piece(id, 0);
}

void OpTracker::finish_piece(std::uint32_t id, int error) {
  Op& op = ops_[id];
  MOEFLUX_ASSERT(op.pieces_left > 0);
  if (op.error == 0) op.error = error;
  if (--op.pieces_left > 0) return;
  results_.push({.tag = op.tag, .error = op.error, .bytes = op.error == 0 ? op.bytes : 0});
  free_ops_.push_back(id);
  --n_open_;
}

void OpTracker::cancel(RingQueue<Piece>& waiting) {
  while (!waiting.empty()) finish_piece(waiting.pop().op, ECANCELED);
}

std::size_t OpTracker::take_results(std::span<ReadResult> results, ReaderStats& stats) {
  std::size_t n = 0;
  while (n < results.size() && !results_.empty()) {
    const ReadResult& result = results[n++] = results_.pop();
    ++stats.ops;
    stats.failed_ops += result.error != 0 ? 1 : 0;
    stats.bytes += result.bytes;
  }
  return n;
}

}  // namespace moeflux
