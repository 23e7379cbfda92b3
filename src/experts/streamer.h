// Brings the experts a layer's router chose to where they can be computed with.
//
// The caller asks for a set of experts: reads of all that are missing start at once, and leases are
// handed out as experts become ready, what is in memory first. A lease pins complete, checked,
// stable bytes while it lives, and leaves the mark of its last use in the slot. Two kinds of reads
// run behind those: prefetch() of what a later request will probably want, and warm(), which fills
// empty slots and never evicts anything. Used by one thread; the drive works on while it computes.
//
// Experts come from the drive where the host reaches the cache's memory, else from a tier of pinned
// memory in between (expert_reader.h).
//
// Where the backend looks experts up by itself (Backend::drives_experts()) there are no requests:
// operations get table() and mailbox(), poll() serves what they ask for, and note_uses() is told
// afterwards what they used.
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

#include "backends/backend.h"
#include "base/error.h"
#include "base/memory_budget.h"
#include "experts/device_table.h"
#include "experts/expert_cache.h"
#include "experts/expert_reader.h"
#include "experts/expert_store.h"
#include "experts/streamer_stats.h"
#include "experts/trace.h"
#include "experts/usage_profile.h"

namespace moeflux {

class ExpertLease {
 public:
  // Takes over a pin of the slot.
  ExpertLease(ExpertCache* cache, Backend* backend, int slot, int index)
      : cache_(cache), backend_(backend), slot_(slot), view_(cache->view(slot)), index_(index) {}
  ~ExpertLease() {
    if (cache_ == nullptr) return;
    cache_->used_until(slot_, backend_->mark());
    cache_->unpin(slot_);
  }
  ExpertLease(ExpertLease&& other) noexcept
      : cache_(std::exchange(other.cache_, nullptr)),
        backend_(other.backend_),
        slot_(other.slot_),
        view_(other.view_),
        index_(other.index_) {}
  ExpertLease& operator=(ExpertLease&&) = delete;

  int index() const { return index_; }  // position of this expert in the request
  const ExpertView& view() const { return view_; }

 private:
  ExpertCache* cache_;
  Backend* backend_;
  int slot_;
  ExpertView view_;
  int index_;
};

// Slots of each size that a tier of pinned memory needs: as many experts as the drive moves at
// once, while as many are copied.
constexpr std::size_t tier_slots(int reads_at_once) {
  return 2 * static_cast<std::size_t>(reads_at_once < 1 ? 1 : reads_at_once);
}

class ExpertStreamer {
 public:
  struct Options {
    std::uint64_t cache_bytes = 0;  // at most; at least one slot of each class is used
    // Slots of each class that there must be where cache_bytes allow: experts of a request that are
    // to be in memory at once.
    std::size_t min_slots = 1;
    // Of the tier of pinned memory, where there is one; less than it needs to work is as much as it
    // needs.
    std::uint64_t host_bytes = 0;
    std::string policy = std::string(kDefaultPolicy);
    std::unique_ptr<AsyncReader> reader = {};  // over the source's disk files; null: made here
    // Experts that are read at the same time. More than keep the drive busy only wait for each
    // other there: see keep_drive_busy().
    int reads_at_once = 4;
  };
  // Reserves the cache, the tier below it and the reader's buffers from `budget`; throws
  // Error(OutOfMemory). The backend must outlive this object.
  ExpertStreamer(ExpertStore store, Backend& backend, MemoryBudget& budget, Options options);
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
  // waiting of an earlier prefetch.
  void prefetch(int bank, std::span<const std::int32_t> experts);

  // Starts the next reads in place of finished ones. Call it now and then while computing, or the
  // drive stands idle meanwhile.
  void keep_reading();

  // Tells the policy what is known from earlier runs. Before the first request.
  void learn(const UsageProfile& profile);

  // Fills empty slots with these, in this order, whenever the drive has nothing better to do.
  void warm(std::vector<ExpertKey> experts);
  // Waits for warm() to come to its end. A read that fails leaves its slot empty: the request that
  // asks for that expert reports why.
  void finish_warming(const std::function<void()>& progress = {});

  // Whether every expert has a slot: then nothing is ever read twice.
  bool holds_all() const { return cache_.holds_all(); }

  // Memory the cache may fill from now on, at most what was reserved and at least min_slots of each
  // class. Rounded down to slots.
  void set_capacity(std::uint64_t bytes);

  // Told of every step and request. Must outlive this object.
  void add_observer(RequestObserver* observer) { observers_.push_back(observer); }

  // For somebody who looks on. `uses` counts hits and misses of single experts; null: nobody counts
  // them. `call` comes when reads may have been started or have landed, once for each request and
  // while it waits. It must not use the streamer but to look at it.
  void count_uses(ExpertUses* uses) { uses_ = uses; }
  void set_on_progress(std::function<void()> call) { on_progress_ = std::move(call); }

  // For a device that looks experts up by itself. Whether it can: the backend does so, and all
  // experts of a bank have the same format.
  bool is_driven_by_device() const { return device_.has_value(); }
  ExpertTable table(int bank) const { return device_->table(bank); }
  Bytes mailbox() const { return device_->mailbox(); }
  // To be called from Backend::set_poll()'s callback: keep_reading(), and answers what a device
  // asks for.
  void poll();
  // Throws what went wrong while a device was served; to be called when all operations of a pass
  // are done. Afterwards experts can be asked for again.
  void rethrow_failure();
  // What a pass used of a bank, as routed [n * top_k]: for the policy, observers and stats. After
  // the pass, in the order of its layers, before the next begin_step().
  void note_uses(int bank, std::span<const std::int32_t> ids);

  const StreamerStats& stats() const { return stats_; }
  std::uint64_t cache_bytes() const { return cache_.bytes(); }
  const ExpertCache& cache() const { return cache_; }
  const ExpertCache* host_tier() const { return host_tier_; }  // null where there is none
  const ExpertStore& store() const { return store_; }
  const AsyncReader& reader() const { return *drive_; }
  int reads_at_once() const { return reads_at_once_; }

 private:
  enum class Purpose : std::uint8_t { Demand, Prefetch, Warm };
  struct Transfer {                     // of one slot
    std::optional<Error> why = {};      // when the slot is Failed
    Purpose purpose = Purpose::Demand;  // Prefetch until the prefetched expert has been used
    std::optional<std::chrono::steady_clock::time_point> start = {};  // of a miss
    std::uint64_t read_ns = 0;  // from then on until it landed
  };
  // What a device waits for.
  struct Service {
    int bank = 0;
    std::vector<int> pinned;   // slots of experts that it needs
    std::vector<int> reading;  // of these, slots it waits for
    std::vector<int> joined;   // of these, those that somebody else had read
    std::deque<int> waiting;   // experts, for a slot
    bool brought_one = false;  // something that was missing is in the table
    bool had_some = false;     // and something was there before
    std::chrono::steady_clock::time_point start;
  };
  // While one lives, poll() and keep_reading() do nothing: the backend may call them from inside of
  // calls that this object makes.
  class Inside {
   public:
    explicit Inside(ExpertStreamer& streamer) : n_(streamer.n_inside_) { ++n_; }
    ~Inside() { --n_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    int& n_;
  };

  std::unique_ptr<ExpertReader> make_expert_reader(MemoryBudget& budget, Options& options);
  bool claim(ExpertKey key, Purpose purpose);  // false when no slot is free now
  void start(int slot);                        // moving its expert there
  void pump();                                 // keeps the reader busy
  bool pump_demanded();
  void collect(bool block);  // notes which experts have landed
  void reap(bool block);     // and takes them in
  void check(int slot);
  Transfer& transfer(int slot) { return transfers_[static_cast<std::size_t>(slot)]; }
  BankStats& bank_stats(int bank) { return stats_.banks[static_cast<std::size_t>(bank)]; }
  void count_hit(int bank, int slot);
  void count_miss(ExpertKey key);
  void note_progress() {
    if (on_progress_) on_progress_();
  }

  // In device_service.cpp.
  bool may_evict() const;
  void publish();
  void begin_service();
  void go_on_serving();
  void end_service();
  void fail_device(const Error& error);

  ExpertStore store_;
  Backend& backend_;
  StreamerStats stats_;
  MemoryBudget::Reservation reservation_, tier_reservation_, reader_reservation_;
  ExpertCache cache_;
  std::optional<DeviceTable> device_;
  const AsyncReader* drive_ = nullptr;
  const ExpertCache* host_tier_ = nullptr;
  int reads_at_once_;
  std::size_t min_slots_;
  std::unique_ptr<ExpertReader> reader_;  // after the cache: it writes into its memory
  std::vector<Transfer> transfers_;       // [n_slots]
  std::deque<int> demanded_;              // slots a request has claimed, not submitted yet
  std::deque<ExpertKey> prefetches_, to_warm_;
  std::vector<int> finished_;  // slots whose expert has landed
  std::vector<int> checked_;   // those being checked, while more may finish
  std::vector<int> tags_;
  std::vector<RequestObserver*> observers_;
  ExpertUses* uses_ = nullptr;
  std::function<void()> on_progress_;
  int n_inside_ = 0;

  std::optional<Service> service_;
  std::vector<int> unpublished_;    // slots that became Ready and are not in the table
  std::vector<int> n_served_;       // [bank]: requests that note_uses() need not count again
  std::vector<std::int32_t> used_;  // of note_uses()
  std::optional<Error> failure_;
};

}  // namespace moeflux
