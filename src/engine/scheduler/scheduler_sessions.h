// The sessions of a scheduler: all the engine's memory plan has room for, made once and used again
// and again. What a session holds when its job has ended stays: the next job whose tokens begin the
// same way goes on from there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "runtime/session.h"

namespace moeflux {

class Engine;

// How far a session can serve `tokens` as it is: the longest beginning it can go back to. Less than
// all of them, since the last one must be run for its logits.
std::int64_t reusable_length(const Session& session, std::span<const TokenId> tokens);

class SessionPool {
 public:
  // Throws Error(OutOfMemory) where the engine was opened for fewer.
  SessionPool(Engine& engine, int n_sessions);

  std::size_t size() const { return slots_.size(); }
  std::size_t n_free() const;

  // The free session with the longest reusable beginning; of equals, the one free for the longest
  // time. Null when none is free.
  Session* take(std::span<const TokenId> tokens);
  // Repairs what a failed pass left: the session goes back to the last state it has kept.
  void give_back(Session* session);

 private:
  struct Slot {
    std::unique_ptr<Session> session;
    bool taken = false;
    std::uint64_t freed_at = 0;
  };

  std::vector<Slot> slots_;
  std::uint64_t n_freed_ = 0;
};

}  // namespace moeflux
