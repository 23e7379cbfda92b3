// Brings the experts a layer's router chose to where they can be computed with.
//
// The caller asks for a set of experts: reads of all that are missing start at once, and leases are
// handed out as experts become ready, what is in memory first. A lease pins complete, checked,
// stable bytes while it lives. Two kinds of reads run behind those: prefetch() of what a later
// request will probably want, and warm(), which fills empty slots and never drives anything out.
// Used by one thread; the disk works on while it computes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/memory_budget.h"
#include "experts/expert_cache.h"
#include "experts/expert_store.h"
#include "experts/streamer_stats.h"
#include "experts/trace.h"
#include "experts/usage_profile.h"
#include "io/async_reader.h"

namespace moeflux {

using ParallelFor =
    std::function<void(std::int64_t n, const std::function<void(std::int64_t)>& body)>;

class ExpertLease {
 public:
  // Takes over a pin of the slot.
  ExpertLease(ExpertCache* cache, int slot, const ExpertView& view, int index)
      : cache_(cache), slot_(slot), view_(view), index_(index) {}
  ~ExpertLease() {
    if (cache_ != nullptr) cache_->unpin(slot_);
  }
  ExpertLease(ExpertLease&& other) noexcept
      : cache_(std::exchange(other.cache_, nullptr)),
        slot_(other.slot_),
        view_(other.view_),
        index_(other.index_) {}
  ExpertLease& operator=(ExpertLease&&) = delete;

  int index() const { return index_; }  // position of this expert in the request
  const ExpertView& view() const { return view_; }

 private:
  ExpertCache* cache_;
  int slot_;
  ExpertView view_;
  int index_;
};

class ExpertStreamer {
 public:
  struct Options {
    std::uint64_t cache_bytes = 0;  // at most; at least one slot is used
    std::string policy = std::string(kDefaultPolicy);
    std::unique_ptr<AsyncReader> reader;  // over the source's disk files; null: made here
    // Experts that are read at the same time. More than keep the drive busy only wait for each
    // other there: see reads_to_keep_busy().
    int reads_at_once = 4;
    // Calls the body for 0 .. n - 1, on several threads if it can: to verify checksums. Empty: one
    // after another.
    ParallelFor parallel_for = {};
  };
  // Reserves the cache and the reader's buffers from `budget`; throws Error(OutOfMemory).
  ExpertStreamer(ExpertStore store, MemoryBudget& budget, Options options);
  ~ExpertStreamer();
  ExpertStreamer(const ExpertStreamer&) = delete;
  ExpertStreamer& operator=(const ExpertStreamer&) = delete;

  class Request {
   public:
    ~Request();
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    // Whether next() has an expert to hand out without waiting.
    bool has_ready() const { return !ready_.empty(); }
    // Waits until it has; false when all have been handed out. Throws Error(Io) naming the file, or
    // the expert whose checksum is wrong; that expert is read anew when it is asked for again.
    // Hold no lease meanwhile: a slot may be needed.
    bool wait();
    // The next expert that is ready, waiting for it; nothing when all have been handed out.
    std::optional<ExpertLease> next();

   private:
    friend class ExpertStreamer;
    struct Item {
      int index;            // into experts_
      int slot;             // pinned
      bool joined = false;  // somebody else had it read
    };
    Request(ExpertStreamer* streamer, int bank, std::span<const std::int32_t> experts);

    bool start(int index);  // false when no slot is free now
    void sort_out_reading();
    ExpertKey key(int index) const { return {bank_, experts_[static_cast<std::size_t>(index)]}; }

    ExpertStreamer* streamer_;
    int bank_;
    std::span<const std::int32_t> experts_;
    std::deque<Item> ready_;
    std::vector<Item> reading_;
    std::deque<int> waiting_;  // for a slot
  };

  // Once per forward pass, before its requests.
  void begin_step(int n_tokens);
  // `experts` are distinct and must stay valid while the request is used. One request at a time.
  Request request(int bank, std::span<const std::int32_t> experts) {
    return Request(this, bank, experts);
  }

  // What the next request of a bank will probably want, most likely first. Replaces what is still
  // waiting of an earlier guess.
  void prefetch(int bank, std::span<const std::int32_t> experts);

  // Starts the next reads in place of finished ones. Call it now and then while computing, or the
  // drive stands idle meanwhile.
  void keep_reading();

  // Tells the policy what is known from earlier runs. Before the first request.
  void learn(const UsageProfile& profile) { profile.teach(cache_.policy()); }

  // Fills empty slots with these, in this order, whenever the disk has nothing better to do.
  void warm(std::vector<ExpertKey> experts);
  // Waits for warm() to come to its end. A read that fails leaves its slot empty: who asks for that
  // expert is told why.
  void finish_warming(const std::function<void()>& progress = {});

  // Whether every expert has a slot: then nothing is ever read twice.
  bool holds_all() const { return cache_.capacity() >= store_.n_experts_total(); }

  // Slots the cache may fill from now on, at most what was reserved and at least `min_slots`.
  void set_capacity(std::size_t n_slots, std::size_t min_slots);

  // Told of every step and request. Must outlive this object.
  void add_observer(RequestObserver* observer) { observers_.push_back(observer); }

  const StreamerStats& stats() const { return stats_; }
  std::uint64_t cache_bytes() const { return reservation_.bytes(); }
  const ExpertCache& cache() const { return cache_; }
  const ExpertStore& store() const { return store_; }
  const AsyncReader& reader() const { return *reader_; }
  int reads_at_once() const { return static_cast<int>(window_); }

 private:
  enum class Purpose : std::uint8_t { Demand, Guess, Warm };
  struct Transfer {  // of one slot
    int n_left = 0;  // reads not reported yet
    int error = 0;
    ExpertRead failed;
    std::optional<Error> why;           // when the slot is Failed
    Purpose purpose = Purpose::Demand;  // Guess until the guess has been used
    std::optional<std::chrono::steady_clock::time_point> start = {};  // of a miss
  };

  bool claim(ExpertKey key, Purpose purpose);  // false when no slot is free now
  void start(int slot);                        // its reads
  void pump();                                 // keeps the drive busy
  void collect(bool block);                    // notes which reads have finished
  void reap(bool block);                       // and takes in what they brought
  void check(int slot);
  Transfer& transfer(int slot) { return transfers_[static_cast<std::size_t>(slot)]; }

  ExpertStore store_;
  MemoryBudget::Reservation reservation_, reader_reservation_;
  ExpertCache cache_;
  std::unique_ptr<AsyncReader> reader_;  // after the cache: it writes into its memory
  ParallelFor parallel_for_;
  std::vector<Transfer> transfers_;  // [n_slots]
  std::size_t window_;               // experts that may be moving at once
  std::size_t n_moving_ = 0;         // those whose reads have been started and not all reported
  std::chrono::steady_clock::time_point busy_since_;  // while any are moving
  std::deque<int> demanded_;  // slots a request has claimed, their reads not started
  std::deque<ExpertKey> guesses_, to_warm_;
  std::vector<int> finished_;  // slots whose last read has been reported
  std::vector<int> checked_;   // those being checked, while more may finish
  std::vector<ReadOp> ops_;
  std::vector<ReadResult> results_;
  std::vector<RequestObserver*> observers_;
  StreamerStats stats_;
};

}  // namespace moeflux
