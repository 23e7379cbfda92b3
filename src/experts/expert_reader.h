// Where the experts of a cache come from: the drive, or the next tier of memory.
//
// Contract, that of AsyncReader: every submitted expert is reported exactly once, when all of its
// bytes have landed or its read has failed; finish() then says which. Tags are slots of the cache,
// so each is in use once at a time. The memory of a slot belongs to the reader until it is
// reported; the destructor waits for what has been started. Used by one thread, finish() by many.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "experts/expert_cache.h"
#include "experts/expert_store.h"
#include "experts/streamer_stats.h"
#include "io/async_reader.h"

namespace moeflux {

class ExpertReader {
 public:
  ExpertReader() = default;
  virtual ~ExpertReader() = default;
  ExpertReader(const ExpertReader&) = delete;
  ExpertReader& operator=(const ExpertReader&) = delete;

  // Whether an expert would start to move at once. What would not is better kept by the caller,
  // where urgent experts can pass it.
  virtual bool is_free_for(ExpertKey key) const = 0;
  virtual void submit(ExpertKey key, const Bytes& slot, int tag) = 0;
  // Moves the tags of what has landed or failed to `tags` and returns how many: at least one if
  // `block` and any is moving.
  virtual std::size_t wait(std::span<int> tags, bool block) = 0;
  virtual std::size_t n_moving() const = 0;  // submitted and not reported
  // Makes a reported expert ready for use where it lies. Throws Error(Io) when its read failed or
  // its bytes are damaged.
  virtual void finish(int tag) = 0;
  // What has not been started fails, and is still reported.
  virtual void cancel() = 0;
};

// Reads from the files of a checkpoint into memory that the host reaches.
class DriveReader final : public ExpertReader {
 public:
  // Moves reads_at_once experts at a time. The store and the stats must outlive it.
  DriveReader(const ExpertStore& store, std::unique_ptr<AsyncReader> reader, int reads_at_once,
              std::size_t n_tags, StreamerStats& stats);
  ~DriveReader() override;

  bool is_free_for(ExpertKey) const override { return n_moving_ < window_; }
  void submit(ExpertKey key, const Bytes& slot, int tag) override;
  std::size_t wait(std::span<int> tags, bool block) override;
  std::size_t n_moving() const override { return n_moving_ + landed_.size(); }
  void finish(int tag) override;
  void cancel() override { reader_->cancel_waiting(); }

  const AsyncReader& reader() const { return *reader_; }

 private:
  struct Move {
    ExpertKey key;
    std::byte* memory = nullptr;
    int n_left = 0;  // reads not reported yet
    int error = 0;
    ExpertRead failed;
  };
  Move& move(int tag) { return moves_[static_cast<std::size_t>(tag)]; }
  void collect(bool block);

  const ExpertStore& store_;
  std::unique_ptr<AsyncReader> reader_;
  std::size_t window_;
  StreamerStats& stats_;
  std::vector<Move> moves_;  // [tag]
  std::size_t n_moving_ = 0;
  std::vector<int> landed_;                           // and not reported
  std::chrono::steady_clock::time_point busy_since_;  // while any are moving
  std::vector<ReadOp> ops_;
  std::vector<ReadResult> results_;
};

// Copies out of a cache in pinned memory, which reads what it does not have from the next reader.
// Experts lie there as they are used, so finish() has nothing left to do but to report failures.
class TierReader final : public ExpertReader {
 public:
  // `next` reads into slots of this tier. All must outlive it but `next`, which it owns.
  TierReader(const ExpertStore& store, Backend& backend, const ExpertCache::Options& options,
             std::unique_ptr<ExpertReader> next, std::size_t n_tags, StreamerStats& stats);
  ~TierReader() override;

  bool is_free_for(ExpertKey key) const override;
  void submit(ExpertKey key, const Bytes& slot, int tag) override;
  std::size_t wait(std::span<int> tags, bool block) override;
  std::size_t n_moving() const override { return n_moving_; }
  void finish(int tag) override;
  void cancel() override { next_->cancel(); }

  const ExpertCache& cache() const { return cache_; }

 private:
  struct Move {
    ExpertKey key;
    Bytes to;
    std::optional<Error> why;  // when it failed
  };
  struct Copy {
    int tag;
    int slot;  // of this tier, pinned
    Mark mark;
  };
  Move& move(int tag) { return moves_[static_cast<std::size_t>(tag)]; }
  bool start(int tag);  // false when no slot of this tier is free now
  void copy(int tag, int slot);
  void take_in(bool block);  // what the next reader brought
  void note_copies();

  Backend& backend_;
  StreamerStats& stats_;
  ExpertCache cache_;
  std::unique_ptr<ExpertReader> next_;        // after the cache: it writes into its memory
  std::vector<Move> moves_;                   // [tag]
  std::vector<int> tag_of_slot_;              // who waits for a slot of this tier
  std::deque<int> waiting_;                   // tags, for a slot of this tier
  std::deque<Copy> copies_;                   // in the order they were started
  std::vector<int> arrived_;                  // slots of this tier that the next reader reported
  std::vector<std::optional<Error>> errors_;  // of these
  std::deque<int> landed_;                    // tags, not reported
  std::size_t n_moving_ = 0;
  int last_bank_ = -1;
};

}  // namespace moeflux
