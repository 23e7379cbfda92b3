// The sessions of a scheduler: all the engine's memory plan has room for, made once and used again
// and again. What a session holds when its job has ended stays: the next job whose tokens begin the
// same way goes on from there. And what the engine has to offer to these sessions: prefixes kept in
// memory and on disk, and drafts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token_id.h"
#include "engine/decoder.h"
#include "engine/prefix/session_sync.h"
#include "runtime/session.h"

namespace moeflux {

// How far a session can serve `tokens` as it is: the longest prefix it can go back to. Less than
// all of them, since the last one must be run for its logits.
std::int64_t reusable_length(const Session& session, std::span<const TokenId> tokens);

class SessionPool {
 public:
  // Throws Error(OutOfMemory) where the engine was opened for fewer.
  SessionPool(Engine& engine, int n_sessions);

  std::size_t size() const { return slots_.size(); }
  std::size_t n_free() const;

  // The free session with the longest reusable prefix; of equals, the one free for the longest
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

enum class Milestone { Message, Prompt, Answer };  // keep_at; all of the prompt; the job's end

// What others do with a session while a job has it. Each may be empty.
struct SessionHooks {
  // Brings the session to where it can go on with a prefix of `tokens`, less than all of them.
  // Empty: it is rewound. Throws Error, which ends the job.
  std::function<void(Session&, std::span<const TokenId> tokens)> sync = {};
  // The session has come to a place worth coming back to. Empty: a checkpoint is set, but for
  // answers. An Error is counted and goes no further.
  std::function<void(Session&, Milestone)> remember = {};
  // At most `count` drafts of what follows the session's tokens and then `next`.
  std::function<void(Session&, TokenId next, int count, std::vector<TokenId>& drafts)> draft = {};
  // Where the pass over the session's next n tokens leaves its hidden rows, see Span::hidden.
  std::function<float*(Session&, std::int64_t n)> hidden = {};
  // A pass in which one job decoded alone has brought it so many tokens, drafting included.
  std::function<void(std::int64_t n_tokens, double seconds)> verified = {};
};

// Jobs begin with what the session or the store has, and leave behind what later ones may use.
// `sync` must outlive the scheduler, whose thread is the only one that uses it.
void add_sync(SessionHooks& hooks, SessionSync& sync);

// A drafter for every session. The governor is told of passes with one job only: what several share
// tells nothing about one. Must outlive the scheduler, whose thread is the only one that uses it.
class SchedulerDrafts {
 public:
  SchedulerDrafts(Engine& engine, const DraftOptions& options)
      : engine_(engine), options_(options) {}

  void add_to(SessionHooks& hooks);

 private:
  Drafter& of(const Session& session);

  Engine& engine_;
  DraftOptions options_;
  std::unordered_map<const Session*, std::unique_ptr<Drafter>> drafters_;
};

}  // namespace moeflux
