// What an engine does, for somebody who looks on from another thread.
//
// Frames are published by the engine's thread, at most ten a second, between the requests of a pass
// and at its end. The mailbox holds one: while it has not been taken, the engine goes on counting
// and publishes nothing, so neither side ever waits for the other. While nobody looks on, all that
// is left is a look at one flag for each request.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/draft_governor.h"
#include "experts/governor.h"
#include "experts/streamer_stats.h"

namespace moeflux {

class Engine;

// Where an expert is.
enum class ExpertLocation : std::uint8_t {
  Drive,    // nowhere else
  Reading,  // on its way from the drive
  Memory,   // of the host
  Device,   // memory that the host cannot reach
};

// Speeds of the machine in bytes per second; 0: not known.
struct MachineLimits {
  double drive = 0;
  double memory = 0;
  friend bool operator==(const MachineLimits&, const MachineLimits&) = default;
};

// What there is to be seen, one bank of experts after the other. Never changes.
struct WatchedBank {
  std::string layer;  // "0", "1", ..., "mtp"
  int n_experts = 0;
  int top_k = 0;
  std::uint64_t expert_bytes = 0;  // as they are read
};

struct CacheState {
  std::uint64_t bytes = 0;           // that were reserved
  std::uint64_t capacity_bytes = 0;  // of these, that may be filled now
  std::uint64_t held_bytes = 0;
  int shrunk = 0, grown = 0;  // times, because of the machine's memory
  std::string cause;          // of the last time: "machine", "cgroup", "stalls"; "" for none
  friend bool operator==(const CacheState&, const CacheState&) = default;
};

struct EngineFrame {
  double seconds = 0;  // since the engine was opened

  // Counters that only grow.
  std::uint64_t passes = 0, rows = 0;
  std::uint64_t hits = 0, misses = 0;
  std::uint64_t bytes_read = 0;  // from the drive
  std::uint64_t bytes_used = 0;  // weights that passes read from memory, as they are stored
  std::uint64_t prefetched = 0, prefetches_used = 0, warmed = 0;
  double wait_seconds = 0;        // the engine stood still for a read
  double drive_busy_seconds = 0;  // some read was on its way

  // As it is now.
  std::vector<ExpertLocation> locations;  // [expert], bank after bank
  CacheState cache;
  LookaheadGovernor::Report lookahead;
  int fixed_lookahead = -1;  // asked for by the user; -1: the governor decides
  DraftGovernor::Report drafts;
  int max_drafts = 0;
  MachineLimits limits;

  // Since the last frame; since somebody looks on in the first one.
  ExpertUses uses;
};

class EngineWatch {
 public:
  static constexpr std::chrono::milliseconds kInterval{100};

  // For the engine, which owns it.
  explicit EngineWatch(Engine& engine);
  EngineWatch(const EngineWatch&) = delete;
  EngineWatch& operator=(const EngineWatch&) = delete;

  // Called by the engine's thread when a frame can be taken. Set before anybody looks on.
  void set_on_frame(std::function<void()> call) { on_frame_ = std::move(call); }

  // Any thread. From now on somebody looks on, or nobody does any more.
  void set_wanted(bool wanted) { wanted_.store(wanted, std::memory_order_relaxed); }
  // One thread at a time. The frame that was published and not taken yet, swapped into `frame`;
  // false: there is none.
  bool take(EngineFrame& frame);
  // Whether a frame that had to be published could not be: call publish() on the engine's thread.
  bool has_missed_one() { return missed_one_.exchange(false); }

  const std::vector<WatchedBank>& banks() const { return banks_; }

  // The engine's thread. A frame, if somebody looks on and the last one is long enough ago.
  void tick() {
    if (wanted_.load(std::memory_order_relaxed) || is_counting_) look();
  }
  // A frame at once: the engine is about to rest, or somebody has just begun to look on.
  void publish();
  // Measures the speeds of the machine that are not known yet. Takes up to a quarter of a second,
  // and memory only where the budget has some left.
  void measure_limits();

 private:
  using Clock = std::chrono::steady_clock;
  void look();
  void set_counting(bool counting);
  void fill(EngineFrame& frame);
  void fill_locations(std::vector<ExpertLocation>& locations) const;

  Engine& engine_;
  std::vector<WatchedBank> banks_;
  std::function<void()> on_frame_;
  Clock::time_point start_ = Clock::now(), last_ = {};
  bool is_counting_ = false;
  bool measured_ = false;
  double memory_limit_ = 0;
  ExpertUses uses_;

  std::atomic<bool> wanted_{false};
  std::atomic<bool> full_{false};  // the mailbox: its frame belongs to who takes
  std::atomic<bool> missed_one_{false};
  EngineFrame mailbox_;
};

}  // namespace moeflux
