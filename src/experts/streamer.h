// Brings the experts a layer's router chose to where they can be computed with. The caller asks for a set of experts
// and takes leases as they become ready, in whatever order that is; a lease pins complete, stable bytes while it lives.
// Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/memory_budget.h"
#include "experts/expert_cache.h"
#include "experts/expert_store.h"

namespace moeflux {

class ExpertLease {
 public:
  ExpertLease(ExpertCache* cache, int slot, int index) : cache_(cache), slot_(slot), index_(index) {
    cache_->pin(slot_);
  }
  ~ExpertLease() {
    if (cache_ != nullptr) cache_->unpin(slot_);
  }
  ExpertLease(ExpertLease&& other) noexcept
      : cache_(std::exchange(other.cache_, nullptr)), slot_(other.slot_), index_(other.index_) {}
  ExpertLease& operator=(ExpertLease&&) = delete;

  int index() const { return index_; }  // position of this expert in the request
  const ExpertView& view() const { return cache_->view(slot_); }

 private:
  ExpertCache* cache_;
  int slot_;
  int index_;
};

class ExpertStreamer {
 public:
  // Uses at most cache_bytes, at least one slot; reserves from `budget`, throwing Error(OutOfMemory) below that.
  ExpertStreamer(ExpertStore store, MemoryBudget& budget, std::uint64_t cache_bytes);

  class Request {
   public:
    // The next expert that is ready, or nothing when all have been handed out. Throws Error when a read fails.
    std::optional<ExpertLease> next();

   private:
    friend class ExpertStreamer;
    Request(ExpertStreamer* streamer, int bank, std::span<const std::int32_t> experts);

    ExpertStreamer* streamer_;
    int bank_;
    std::span<const std::int32_t> experts_;
    std::vector<int> hits_first_;  // indices into experts_, what is cached before what must be read
    std::size_t n_done_ = 0;
  };

  // `experts` must stay valid while the request is used.
  Request request(int bank, std::span<const std::int32_t> experts) { return Request(this, bank, experts); }

  struct Stats {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t bytes_read = 0;
  };
  const Stats& stats() const { return stats_; }
  std::uint64_t cache_bytes() const { return reservation_.bytes(); }
  const ExpertStore& store() const { return store_; }

 private:
  ExpertLease acquire(ExpertKey key, int index);

  ExpertStore store_;
  MemoryBudget::Reservation reservation_;
  ExpertCache cache_;
  Stats stats_;
};

}  // namespace moeflux
