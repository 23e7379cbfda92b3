#include "engine/scheduler/scheduler_sessions.h"

#include <algorithm>

#include "base/error.h"

namespace moeflux {

std::int64_t reusable_length(const Session& session, std::span<const TokenId> tokens) {
  if (tokens.empty()) return 0;
  const std::span<const TokenId> held = session.tokens();
  const std::span<const TokenId> wanted = tokens.first(tokens.size() - 1);
  const auto differ =
      std::mismatch(held.begin(), held.end(), wanted.begin(), wanted.end()).first - held.begin();
  return session.nearest_rewind(differ);
}

SessionPool::SessionPool(Engine& engine, int n_sessions) {
  if (n_sessions < 1) fail(Errc::BadInput, "a scheduler needs a session; {} are asked", n_sessions);
  for (int i = 0; i < n_sessions; ++i)
    slots_.push_back({.session = std::make_unique<Session>(engine.new_session())});
}

std::size_t SessionPool::n_free() const {
  return static_cast<std::size_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.taken; }));
}

Session* SessionPool::take(std::span<const TokenId> tokens) {
  Slot* best = nullptr;
  std::int64_t best_length = -1;
  for (Slot& slot : slots_) {
    if (slot.taken) continue;
    const std::int64_t length = reusable_length(*slot.session, tokens);
    if (length > best_length || (length == best_length && slot.freed_at < best->freed_at)) {
      best = &slot;
      best_length = length;
    }
  }
  if (best == nullptr) return nullptr;
  best->taken = true;
  return best->session.get();
}

void SessionPool::give_back(Session* session) {
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [&](const Slot& s) { return s.session.get() == session; });
  MOEFLUX_ASSERT(slot != slots_.end() && slot->taken);
  if (session->is_poisoned()) session->rewind(session->nearest_rewind(session->length()));
  slot->taken = false;
  slot->freed_at = ++n_freed_;
}

void add_sync(SessionHooks& hooks, SessionSync& sync) {
  hooks.sync = [&sync](Session& session, std::span<const TokenId> tokens) {
    sync.sync(session, tokens);
  };
  hooks.remember = [&sync](Session& session, Milestone) { sync.remember(session); };
}

void SchedulerDrafts::add_to(SessionHooks& hooks) {
  if (!options_.any() || engine_.max_drafts() == 0) return;
  hooks.draft = [this](Session& session, TokenId next, int count, std::vector<TokenId>& drafts) {
    of(session).draft(session, next, count, drafts);
  };
  hooks.hidden = [this](Session& session, std::int64_t n) {
    return of(session).hidden_rows(session, n);
  };
  hooks.verified = [this](std::int64_t n_tokens, double seconds) {
    if (!options_.depth) engine_.draft_governor().record(n_tokens, seconds);
  };
}

Drafter& SchedulerDrafts::of(const Session& session) {
  std::unique_ptr<Drafter>& drafter = drafters_[&session];
  if (drafter == nullptr) drafter = std::make_unique<Drafter>(engine_, options_);
  return *drafter;
}

}  // namespace moeflux
