// What the engine has to offer to the sessions of a scheduler: beginnings kept in memory and on
// disk, and drafts. The objects must outlive the scheduler, and its thread is the only one that
// uses them.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "engine/decoder.h"
#include "engine/prefix/session_sync.h"
#include "engine/scheduler/scheduler.h"

namespace moeflux {

// Jobs begin with what the session or the store has, and leave behind what later ones may use.
void add_sync(SessionHooks& hooks, SessionSync& sync);

// Drafters for every session. Their depth is fixed or the engine's governor decides it, who is told
// of passes with one job only: what several share tells nothing about one.
class SchedulerDrafts {
 public:
  SchedulerDrafts(Engine& engine, const DraftOptions& options)
      : engine_(engine), options_(options) {}

  void add_to(SessionHooks& hooks);

 private:
  struct Drafters {
    std::optional<MtpDrafter> mtp;
    NgramDrafter ngram;
  };
  Drafters& of(const Session& session);
  void draft(Session& session, TokenId next, int count, std::vector<TokenId>& drafts);

  Engine& engine_;
  DraftOptions options_;
  std::unordered_map<const Session*, std::unique_ptr<Drafters>> drafters_;
};

}  // namespace moeflux
