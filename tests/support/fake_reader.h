// An AsyncReader for tests of its users: real bytes from real files, delivered late, in pieces and
// out of order, all as a seed says. Time passes only in wait(): one tick a call. Until an op is
// reported its memory holds a mixture of poison and data, as with a real reader, so a user that
// looks too early computes nonsense. No threads; deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "io/async_reader.h"

namespace moeflux::test {

struct FakeReaderOptions {
  std::uint64_t seed = 1;
  bool shuffle = true;  // order of ops that are ready at the same tick
  int max_delay = 5;    // ticks until an op is ready: 1..max_delay
};

class FakeReader final : public AsyncReader {
 public:
  explicit FakeReader(const std::vector<std::string>& paths, FakeReaderOptions options = {});

  // Ops are counted from 0 over the life of the reader. The op is reported with `error` after its
  // delay.
  void fail_op(std::uint64_t number, int error) { faults_[number].error = error; }
  // Asked for every op that fail_op does not name; 0 lets it pass.
  void fail_when(std::function<int(const ReadOp&)> choose) { choose_error_ = std::move(choose); }
  // The op succeeds with one wrong bit.
  void flip_bit(std::uint64_t number, std::uint64_t bit) { faults_[number].flipped_bit = bit; }
  // While held, no op becomes ready; a blocking wait() would never end, and throws
  // std::logic_error.
  void hold(bool held) { held_ = held; }

  std::uint64_t n_submitted() const { return n_submitted_; }
  const std::vector<ReadOp>& log() const { return log_; }  // every op submitted, in order

  void submit(std::span<const ReadOp> ops) override;
  std::size_t wait(std::span<ReadResult> results, bool block) override;
  std::size_t in_flight() const override { return pending_.size() + ready_.size(); }
  void cancel_waiting() override;
  int register_memory(std::span<std::byte>) override { return 0; }
  FileAlignment alignment(int) const override { return {}; }
  ReaderInfo info() const override;
  ReaderStats stats() const override { return stats_; }

 private:
  struct Fault {
    int error = 0;
    std::int64_t flipped_bit = -1;
  };
  struct Pending {
    ReadOp op;
    int ticks_left = 1;
    std::size_t bytes_done = 0;
    bool started = false;
    Fault fault;
  };

  void tick();
  void advance(Pending& pending);
  int error_of(const ReadOp& op, int chosen) const;
  void finish(const Pending& pending, int error);

  FakeReaderOptions options_;
  std::vector<std::unique_ptr<File>> files_;
  std::mt19937_64 random_;
  std::map<std::uint64_t, Fault> faults_;
  std::function<int(const ReadOp&)> choose_error_;
  std::vector<Pending> pending_;
  std::vector<ReadResult> ready_;
  std::vector<ReadOp> log_;
  std::uint64_t n_submitted_ = 0;
  bool held_ = false;
  ReaderStats stats_;
};

}  // namespace moeflux::test
