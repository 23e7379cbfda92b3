#include "engine/scheduler/scheduler_sessions.h"

#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"

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

}  // namespace moeflux
