#include "experts/streamer.h"

#include <algorithm>

#include "base/error.h"

namespace moeflux {
namespace {

std::size_t slot_count(const ExpertStore& store, std::uint64_t cache_bytes) {
  if (store.n_experts_total() == 0) return 0;
  const std::uint64_t fitting = cache_bytes / store.slot_bytes();
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(fitting, 1, store.n_experts_total()));
}

}  // namespace

ExpertStreamer::ExpertStreamer(ExpertStore store, MemoryBudget& budget, std::uint64_t cache_bytes)
    : store_(std::move(store)),
      reservation_(budget.reserve("expert cache", slot_count(store_, cache_bytes) * store_.slot_bytes())),
      cache_(store_.slot_bytes(), slot_count(store_, cache_bytes)) {}

ExpertStreamer::Request::Request(ExpertStreamer* streamer, int bank, std::span<const std::int32_t> experts)
    : streamer_(streamer), bank_(bank), experts_(experts), hits_first_(experts.size()) {
  // Misses last, so that a read for this request never evicts an expert the same request could have used.
  auto hit = hits_first_.begin();
  auto miss = hits_first_.end();
  for (int i = 0; i < static_cast<int>(experts.size()); ++i) {
    const bool cached = streamer->cache_.find({bank, experts[static_cast<std::size_t>(i)]}) >= 0;
    if (cached) {
      *hit++ = i;
    } else {
      *--miss = i;
    }
  }
}

std::optional<ExpertLease> ExpertStreamer::Request::next() {
  if (n_done_ == hits_first_.size()) return std::nullopt;
  const int index = hits_first_[n_done_++];
  return streamer_->acquire({bank_, experts_[static_cast<std::size_t>(index)]}, index);
}

ExpertLease ExpertStreamer::acquire(ExpertKey key, int index) {
  int slot = cache_.find(key);
  if (slot >= 0) {
    ++stats_.hits;
  } else {
    ++stats_.misses;
    slot = cache_.claim();
    MOEFLUX_ASSERT(slot >= 0);  // leases are used one at a time
    cache_.fill(slot, key, store_.read(key, cache_.memory(slot)));
    stats_.bytes_read += store_.bytes(key);
  }
  return ExpertLease(&cache_, slot, index);
}

}  // namespace moeflux
