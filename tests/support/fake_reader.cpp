#include "support/fake_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace moeflux::test {
namespace {

constexpr int kPoison = 0xA5;

}  // namespace

FakeReader::FakeReader(const std::vector<std::string>& paths, FakeReaderOptions options)
    : options_(options), random_(options.seed) {
  for (const std::string& path : paths) files_.push_back(std::make_unique<File>(path));
}

void FakeReader::submit(std::span<const ReadOp> ops) {
  for (const ReadOp& op : ops) {
    Pending pending;
    pending.op = op;
    pending.ticks_left =
        1 + static_cast<int>(random_() % static_cast<std::uint64_t>(options_.max_delay));
    const auto fault = faults_.find(n_submitted_++);
    if (fault != faults_.end()) pending.fault = fault->second;
    if (pending.fault.error == 0 && choose_error_) pending.fault.error = choose_error_(op);
    pending.fault.error = error_of(op, pending.fault.error);
    if (!op.out.empty()) std::memset(op.out.data(), kPoison, op.out.size());
    pending_.push_back(pending);
    log_.push_back(op);
  }
}

// What a real reader would find wrong comes before what a test asked for.
int FakeReader::error_of(const ReadOp& op, int chosen) const {
  if (op.file < 0 || op.file >= static_cast<int>(files_.size())) return EBADF;
  const std::uint64_t size = files_[static_cast<std::size_t>(op.file)]->size();
  if (!op.out.empty() && (op.offset > size || op.out.size() > size - op.offset)) return kEndOfFile;
  return chosen;
}

std::size_t FakeReader::wait(std::span<ReadResult> results, bool block) {
  if (results.empty()) return 0;
  if (!held_) tick();
  while (block && ready_.empty() && !pending_.empty()) {
    MOEFLUX_ASSERT(!held_);
    tick();
  }
  const std::size_t n = std::min(results.size(), ready_.size());
  std::copy_n(ready_.begin(), n, results.begin());
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(n));
  return n;
}

void FakeReader::tick() {
  if (options_.shuffle) std::shuffle(pending_.begin(), pending_.end(), random_);
  for (Pending& pending : pending_) advance(pending);
  std::erase_if(pending_, [](const Pending& pending) { return pending.ticks_left == 0; });
}

// Brings an op a piece further. A failed one stops half-way, as a real one does.
void FakeReader::advance(Pending& pending) {
  pending.started = true;
  const std::size_t missing = pending.op.out.size() - pending.bytes_done;
  const std::size_t piece = missing / static_cast<std::size_t>(pending.ticks_left);
  const bool last = --pending.ticks_left == 0;
  if (!last || pending.fault.error == 0) {
    if (piece > 0 && error_of(pending.op, 0) == 0) {
      files_[static_cast<std::size_t>(pending.op.file)]->read(
          pending.op.offset + pending.bytes_done,
          pending.op.out.subspan(pending.bytes_done, piece));
    }
    pending.bytes_done += piece;
  }
  if (last) finish(pending, pending.fault.error);
}

void FakeReader::finish(const Pending& pending, int error) {
  const std::span<std::byte> out = pending.op.out;
  const std::int64_t bit = pending.fault.flipped_bit;
  if (error == 0 && bit >= 0 && !out.empty()) {
    const std::size_t place = static_cast<std::size_t>(bit) % (8 * out.size());
    out[place / 8] ^= std::byte{1} << static_cast<int>(place % 8);
  }
  ready_.push_back({.tag = pending.op.tag, .error = error, .bytes = error == 0 ? out.size() : 0});
  ++stats_.ops;
  stats_.failed_ops += error != 0 ? 1 : 0;
  stats_.bytes += error == 0 ? out.size() : 0;
}

void FakeReader::cancel_waiting() {
  for (const Pending& pending : pending_) {
    if (!pending.started) finish(pending, ECANCELED);
  }
  std::erase_if(pending_, [](const Pending& pending) { return !pending.started; });
}

ReaderInfo FakeReader::info() const {
  ReaderInfo info;
  info.name = "fake";
  info.buffered_files = static_cast<int>(files_.size());
  return info;
}

}  // namespace moeflux::test
