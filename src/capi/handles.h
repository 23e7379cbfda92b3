// What stands behind the opaque types of the C API, and the two rules that hold for all of it:
//
// An engine is used by one thread at a time: who evaluates holds a Turn. What only touches a
// sequence's own state needs none, since a context belongs to one thread at a time.
//
// A model lives as long as any handle on it: every handle shares it.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <moeflux/moeflux.h>

#include "engine/engine.h"
#include "engine/prefix/prefix_store.h"
#include "runtime/sampling/sampler.h"
#include "runtime/snapshot/snapshot.h"

namespace moeflux::capi {

class Model {
 public:
  explicit Model(const mf_model_params& params);

  Engine engine;
  const std::string name;     // for people: the last part of its path
  const int max_sequences;    // that memory was planned for
  const int max_checkpoints;  // of each

  SnapshotModel snapshot_model();
  PrefixStore* prefix_store() { return store_ ? &*store_ : nullptr; }  // for who has the turn
  TokenId eos() const;

  // Counts sequences against max_sequences; throws when there are too many.
  void promise(int n_sequences);
  void release(int n_sequences) { promised_ -= n_sequences; }

 private:
  friend class Turn;
  std::mutex turn_;
  std::atomic<std::thread::id> owner_{};
  std::atomic<int> promised_ = 0;
  std::optional<PrefixStore> store_;
  std::once_flag identified_;
  std::string identity_;  // computed when a snapshot first needs it
};

// The right to use the engine. Throws MF_ERROR_BUSY when this thread has it already: a callback
// that evaluates would wait for itself.
class Turn {
 public:
  explicit Turn(Model& model);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Model& model_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace moeflux::capi

struct mf_model {
  std::shared_ptr<moeflux::capi::Model> shared;
};

struct mf_ctx {
  mf_ctx(const mf_model& on, const mf_context_params& params);
  ~mf_ctx();

  moeflux::capi::Model& model() const { return *on_model.shared; }
  moeflux::Engine& engine() const { return on_model.shared->engine; }

  mf_model on_model;
  int max_sequences;
  int max_checkpoints;  // of every sequence
  std::map<int, moeflux::Session> sequences;
  std::atomic<bool> cancelled = false;
  mf_progress_fn progress = nullptr;
  void* progress_user = nullptr;
  mf_stats stats{};
};

struct mf_sampler {
  std::shared_ptr<moeflux::capi::Model> shared;
  moeflux::SamplingParams params;
  moeflux::Sampler sampler;
  std::vector<moeflux::TokenId> history;
  std::size_t n_prompt = 0;
};

namespace moeflux::capi {

// Null when it does not exist. Throws for a negative number.
const Session* find_sequence(const mf_ctx& ctx, int seq_id);
inline Session* find_sequence(mf_ctx& ctx, int seq_id) {
  return const_cast<Session*>(find_sequence(std::as_const(ctx), seq_id));
}
// 0 when it does not exist.
std::size_t sequence_length(const mf_ctx& ctx, int seq_id);
// Throws when an evaluation of the sequence failed half-way; `consequence` ends the message.
void check_sound(const Session& session, int seq_id, const char* consequence);
// Creates it when it does not exist.
Session& sequence(mf_ctx& ctx, int seq_id);

// Throws unless the tokens can be appended to the sequence, which need not exist yet. `position`,
// when given, must be its length.
void check_append(const mf_ctx& ctx, int seq_id, std::optional<std::size_t> position,
                  std::span<const TokenId> tokens);
// Tokens of a caller; NULL will do where there are none. Throws unless each is one of the model's.
std::span<const TokenId> tokens_of(const Engine& engine, const std::int32_t* tokens, std::size_t n,
                                   const char* name);

// A call that evaluates: holds the turn, hears cancellation, tells progress and counts.
class Evaluation {
 public:
  explicit Evaluation(mf_ctx& ctx);
  ~Evaluation();

  // True when mf_cancel() was called; forgets it.
  bool cancelled() { return ctx_.cancelled.exchange(false); }

  // Feeds tokens with progress; throws Error(Cancelled).
  std::vector<float> prefill(Session& session, std::span<const TokenId> tokens);

 private:
  bool stop_before_pass(std::uint64_t done, std::uint64_t total);
  mf_stats counters() const;

  mf_ctx& ctx_;
  Turn turn_;
  mf_stats before_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace moeflux::capi
