#include "experts/expert_reader.h"

#include <algorithm>

#include "base/stopwatch.h"

namespace moeflux {
namespace {

constexpr std::size_t kResultsAtOnce = 64;

// A read is known by the tag of its expert and its place among the reads of the expert.
constexpr std::uint64_t read_tag(int tag, std::size_t read) {
  return (static_cast<std::uint64_t>(tag) << 16) | static_cast<std::uint64_t>(read);
}
constexpr int expert_tag(std::uint64_t tag) {
  return static_cast<int>(tag >> 16);
}
constexpr std::size_t read_index(std::uint64_t tag) {
  return tag & 0xFFFF;
}

// Moves the first of `from` to `to`.
template <class From>
std::size_t take_tags(From& from, std::span<int> to) {
  const std::size_t n = std::min(from.size(), to.size());
  const auto end = from.begin() + static_cast<std::ptrdiff_t>(n);
  std::copy(from.begin(), end, to.begin());
  from.erase(from.begin(), end);
  return n;
}

}  // namespace

DriveReader::DriveReader(const ExpertStore& store, std::unique_ptr<AsyncReader> reader,
                         int reads_at_once, std::size_t n_tags, StreamerStats& stats)
    : store_(store),
      reader_(std::move(reader)),
      window_(static_cast<std::size_t>(std::max(reads_at_once, 1))),
      stats_(stats),
      moves_(n_tags),
      results_(kResultsAtOnce) {}

DriveReader::~DriveReader() {
  reader_->cancel_waiting();
  reader_.reset();  // waits for what is in flight
}

void DriveReader::submit(ExpertKey key, const Bytes& slot, int tag) {
  const auto reads = store_.reads(key);
  std::byte* memory = slot.buffer->host() + slot.offset;
  move(tag) = {key, memory, static_cast<int>(reads.size()), 0, {}};
  ops_.clear();
  for (std::size_t i = 0; i < reads.size(); ++i) {
    ops_.push_back({.file = reads[i].disk_file,
                    .offset = reads[i].offset,
                    .out = {memory + reads[i].slot_offset, reads[i].bytes},
                    .tag = read_tag(tag, i)});
    stats_.bytes_read += reads[i].bytes;
  }
  if (n_moving_++ == 0) busy_since_ = std::chrono::steady_clock::now();
  reader_->submit(ops_);
}

void DriveReader::collect(bool block) {
  const std::size_t n = reader_->wait(results_, block);
  for (std::size_t i = 0; i < n; ++i) {
    const ReadResult& result = results_[i];
    const int tag = expert_tag(result.tag);
    Move& moved = move(tag);
    if (result.error != 0 && moved.error == 0) {
      moved.error = result.error;
      moved.failed = store_.reads(moved.key)[read_index(result.tag)];
    }
    if (--moved.n_left > 0) continue;
    if (--n_moving_ == 0) stats_.busy_ns += nanoseconds_since(busy_since_);
    landed_.push_back(tag);
  }
}

std::size_t DriveReader::wait(std::span<int> tags, bool block) {
  if (n_moving_ > 0) collect(block && landed_.empty());
  while (block && landed_.empty() && n_moving_ > 0) collect(/*block=*/true);
  return take_tags(landed_, tags);
}

void DriveReader::finish(int tag) {
  const Move& moved = move(tag);
  if (moved.error != 0) {
    fail(Errc::Io, "{}: reading {} failed: {} bytes at offset {}: {}",
         store_.source().disk_file(moved.failed.disk_file).path(), store_.name(moved.key),
         moved.failed.bytes, moved.failed.offset, describe_read_error(moved.error));
  }
  store_.prepare(moved.key, moved.memory);
}

TierReader::TierReader(const ExpertStore& store, Backend& backend,
                       const ExpertCache::Options& options, std::unique_ptr<ExpertReader> next,
                       std::size_t n_tags, StreamerStats& stats)
    : backend_(backend),
      stats_(stats),
      cache_(store, backend, options),
      next_(std::move(next)),
      moves_(n_tags),
      tag_of_slot_(cache_.n_slots(), -1),
      arrived_(kResultsAtOnce),
      errors_(kResultsAtOnce) {}

TierReader::~TierReader() {
  for (const Copy& each : copies_) backend_.wait_for_transfer(each.mark);
}

bool TierReader::is_free_for(ExpertKey key) const {
  const int slot = cache_.find(key);
  if (slot >= 0 && cache_.state(slot) == ExpertCache::State::Ready) return true;
  return waiting_.empty() && next_->is_free_for(key);
}

void TierReader::submit(ExpertKey key, const Bytes& slot, int tag) {
  move(tag) = {key, slot, std::nullopt};
  ++n_moving_;
  if (key.bank != last_bank_) cache_.begin_request(last_bank_ = key.bank);
  const int held = cache_.find(key);
  if (held >= 0) cache_.pin(held);  // withdrawn from the policy before it is told of the use
  cache_.use(key);
  if (held >= 0) return copy(tag, held);
  if (!waiting_.empty() || !start(tag)) waiting_.push_back(tag);
}

// Nobody but moves of this tier reads into its slots, and no expert is moved twice at a time: what
// is held is Ready.
bool TierReader::start(int tag) {
  const int slot = cache_.claim(move(tag).key);
  if (slot < 0) return false;
  cache_.pin(slot);
  tag_of_slot_[static_cast<std::size_t>(slot)] = tag;
  next_->submit(move(tag).key, cache_.bytes_of(slot), slot);
  return true;
}

void TierReader::copy(int tag, int slot) {
  MOEFLUX_ASSERT(cache_.state(slot) == ExpertCache::State::Ready);
  const Bytes from = cache_.bytes_of(slot);
  Bytes to = move(tag).to;
  MOEFLUX_ASSERT(to.size == from.size);
  copies_.push_back({tag, slot, backend_.transfer(from, to)});
}

void TierReader::take_in(bool block) {
  const std::size_t n = next_->wait(arrived_, block);
  if (n > 0) {
    const Stopwatch stopwatch(stats_.check_ns);
    backend_.parallel_for(static_cast<std::int64_t>(n), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      errors_[at].reset();
      try {
        next_->finish(arrived_[at]);
      } catch (const Error& error) {
        errors_[at] = error;
      }
    });
  }
  for (std::size_t i = 0; i < n; ++i) {
    const int slot = arrived_[i], tag = tag_of_slot_[static_cast<std::size_t>(slot)];
    if (errors_[i]) {
      cache_.fail(slot);
      cache_.unpin(slot);
      move(tag).why = errors_[i];
      landed_.push_back(tag);
    } else {
      cache_.complete(slot);
      copy(tag, slot);
    }
  }
  while (!waiting_.empty() && start(waiting_.front())) waiting_.pop_front();
}

void TierReader::note_copies() {
  while (!copies_.empty() && backend_.transferred(copies_.front().mark)) {
    cache_.unpin(copies_.front().slot);
    landed_.push_back(copies_.front().tag);
    copies_.pop_front();
  }
  while (!waiting_.empty() && start(waiting_.front())) waiting_.pop_front();
}

std::size_t TierReader::wait(std::span<int> tags, bool block) {
  take_in(/*block=*/false);
  note_copies();
  while (block && landed_.empty() && n_moving_ > 0) {
    if (copies_.empty()) {
      take_in(/*block=*/true);
    } else {
      backend_.wait_for_transfer(copies_.front().mark);
    }
    note_copies();
  }
  const std::size_t n = take_tags(landed_, tags);
  n_moving_ -= n;
  return n;
}

void TierReader::finish(int tag) {
  if (move(tag).why) throw *move(tag).why;
}

}  // namespace moeflux
