#include "engine/scheduler/scheduler_hooks.h"

#include <algorithm>

namespace moeflux {

void add_sync(SessionHooks& hooks, SessionSync& sync) {
  hooks.sync = [&sync](Session& session, std::span<const TokenId> tokens) {
    sync.sync(session, tokens);
  };
  hooks.remember = [&sync](Session& session, Milestone) { sync.remember(session); };
}

void SchedulerDrafts::add_to(SessionHooks& hooks) {
  if (!options_.any() || engine_.max_drafts() == 0) return;
  hooks.draft = [this](Session& session, TokenId next, int count, std::vector<TokenId>& drafts) {
    draft(session, next, count, drafts);
  };
  hooks.verified = [this](std::int64_t n_tokens, double seconds) {
    if (!options_.depth) engine_.draft_governor().record(n_tokens, seconds);
  };
  if (!options_.mtp || !engine_.config().mtp) return;
  hooks.hidden = [this](Session& session, std::int64_t n) {
    return of(session).mtp->rows(session, n);
  };
}

SchedulerDrafts::Drafters& SchedulerDrafts::of(const Session& session) {
  std::unique_ptr<Drafters>& drafters = drafters_[&session];
  if (drafters == nullptr) {
    drafters = std::make_unique<Drafters>();
    if (options_.mtp && engine_.config().mtp) {
      drafters->mtp.emplace(engine_.forward(), engine_.config(), engine_.n_sampled(),
                            engine_.budget());
    }
  }
  return *drafters;
}

void SchedulerDrafts::draft(Session& session, TokenId next, int count,
                            std::vector<TokenId>& drafts) {
  count = std::min(count, options_.depth.value_or(engine_.draft_governor().depth()));
  if (count <= 0) return;
  Drafters& drafters = of(session);
  if (options_.ngram) drafters.ngram.draft(session.tokens(), next, count, drafts);
  if (drafts.empty() && drafters.mtp) drafters.mtp->draft(session, next, count, drafts);
}

}  // namespace moeflux
