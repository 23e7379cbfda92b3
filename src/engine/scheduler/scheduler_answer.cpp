// What a pass means for a job that was in it: its session has moved on, and where that completed
// its pending rows, tokens are drawn.
#include <algorithm>

#include "base/error.h"
#include "engine/scheduler/scheduler.h"

namespace moeflux {

void Scheduler::advance(Job& job) {
  try {
    const std::int64_t n_done = job.session->length(), n_prompt = job.stats.n_prompt;
    if (n_done <= n_prompt) job.emit(JobProgress{n_done, n_prompt});
    if (n_done == n_prompt)
      remember(job, Milestone::Prompt);
    else if (job.keeps_here())
      remember(job, Milestone::Message);
    if (job.pending().empty()) draw(job);
  } catch (const std::exception& cause) {  // such as nothing left to draw: no matter of the others
    end(job, failed(cause));
  }
}

// One token follows from the last row. With drafts, each row but the first belongs to a guess, and
// counts as long as the tokens drawn are the ones guessed: the draws are then those of plain
// decoding, since each depends on its row's logits and its number alone.
void Scheduler::draw(Job& job) {
  if (static_cast<std::int64_t>(job.history.size()) == job.stats.n_prompt)
    job.stats.prefill_seconds = job.lap();
  const std::size_t n_drafts = job.drafts.size();
  const auto n_vocab = static_cast<std::size_t>(engine_.config().n_vocab);
  job.history.resize(job.history.size() - n_drafts);
  std::size_t n_accepted = 0;
  std::optional<JobEnded> ended;
  while (true) {
    const std::span<const float> logits = job.logits.subspan(n_accepted * n_vocab, n_vocab);
    const TokenId token = sample(job, logits);
    const bool guessed = n_accepted < n_drafts && job.drafts[n_accepted] == token;
    if (guessed) ++n_accepted;
    ended = take(job, token, logits);
    if (!guessed || ended || job.cancelled) break;
  }
  job.session->take_back(static_cast<std::int64_t>(n_drafts - n_accepted));
  job.stats.n_drafted += static_cast<std::int64_t>(n_drafts);
  job.stats.n_accepted += static_cast<std::int64_t>(n_accepted);
  job.drafts.clear();
  if (ended) end(job, *ended);
}

TokenId Scheduler::sample(const Job& job, std::span<const float> logits) {
  const auto n_valid = static_cast<std::size_t>(engine_.n_sampled());
  std::span<const std::uint8_t> allowed;
  if (job.request.constraint) allowed = job.request.constraint->allowed();
  return sampler_.sample({.logits = logits,
                          .n_valid = n_valid,
                          .allowed = allowed.first(std::min(allowed.size(), n_valid)),
                          .history = job.history,
                          .n_prompt = static_cast<std::size_t>(job.stats.n_prompt),
                          .step = static_cast<std::uint64_t>(job.stats.n_tokens)},
                         job.request.sampling);
}

// The answer grows by a token, which may be its last.
std::optional<JobEnded> Scheduler::take(Job& job, TokenId token, std::span<const float> logits) {
  const auto is_in = [&](const std::vector<TokenId>& tokens) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  job.history.push_back(token);
  if (is_in(job.request.stop_tokens) || (!job.request.ignore_end && is_in(engine_.stop_tokens())))
    return JobEnded{.reason = StopReason::EndToken};
  ++job.stats.n_tokens;
  job.emit(JobToken{token, logits});
  TokenConstraint* constraint = job.request.constraint.get();
  if (constraint != nullptr) constraint->accept(token);
  if (job.text) {
    const StopMatcher::Output output = job.text->feed(token);
    if (!output.text.empty()) job.emit(JobText{output.text});
    if (output.stopped_by)
      return JobEnded{.reason = StopReason::StopString, .stop = output.stopped_by};
  }
  if (constraint != nullptr && constraint->must_end())
    return JobEnded{.reason = StopReason::EndToken};
  if (job.request.max_tokens > 0 && job.stats.n_tokens >= job.request.max_tokens)
    return JobEnded{.reason = StopReason::MaxTokens};
  if (static_cast<std::int64_t>(job.history.size()) > job.session->max_length())
    return JobEnded{.reason = StopReason::ContextFull};
  return std::nullopt;
}

void Scheduler::remember(Job& job, Milestone milestone) {
  Session& session = *job.session;
  try {
    if (options_.hooks.remember) {
      options_.hooks.remember(session, milestone);
    } else if (milestone != Milestone::Answer && session.is_recurrent() &&
               session.max_checkpoints() > 0) {
      session.checkpoint();
    }
  } catch (const std::exception&) {  // the answer is as good without
    ++stats_.n_not_remembered;
  }
}

}  // namespace moeflux
