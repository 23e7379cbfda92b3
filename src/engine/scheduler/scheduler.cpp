#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/stopwatch.h"

namespace moeflux {

std::vector<std::int64_t> plan_pass(std::span<const PassJob> jobs, const PassLimits& limits) {
  std::vector<std::size_t> turns(jobs.size());  // served longest ago first
  std::iota(turns.begin(), turns.end(), std::size_t{0});
  std::stable_sort(turns.begin(), turns.end(), [&](std::size_t a, std::size_t b) {
    return jobs[a].last_pass < jobs[b].last_pass;
  });

  const std::int64_t n_decoding =
      std::count_if(jobs.begin(), jobs.end(), [](const PassJob& job) { return job.decodes; });
  const bool prompts_wait = n_decoding < static_cast<std::int64_t>(jobs.size());
  std::int64_t rows_left = limits.max_rows;
  std::vector<std::int64_t> rows(jobs.size());
  if (n_decoding + (prompts_wait ? 1 : 0) > rows_left) {
    for (const std::size_t i : turns) {
      if (rows_left-- == 0) break;
      rows[i] = 1;
    }
    return rows;
  }

  for (std::size_t i = 0; i < jobs.size(); ++i) rows[i] = jobs[i].decodes ? 1 : 0;
  rows_left -= n_decoding;
  if (n_decoding > 0) rows_left = std::min(rows_left, std::max<std::int64_t>(limits.slice_rows, 1));
  for (const std::size_t i : turns) {
    if (jobs[i].decodes) continue;
    rows[i] = std::min(jobs[i].n_pending, rows_left);
    rows_left -= rows[i];
  }
  return rows;
}

Scheduler::Scheduler(Engine& engine, SchedulerOptions options)
    : engine_(engine), options_(std::move(options)), sessions_(engine, options_.n_sessions) {
  if (options_.max_drafts < 0 || options_.max_drafts > engine.max_drafts()) {
    fail(Errc::BadInput, "{} drafts are asked of an engine that was opened for {}",
         options_.max_drafts, engine.max_drafts());
  }
  const std::size_t row = static_cast<std::size_t>(engine.config().n_vocab) * sessions_.size();
  const std::size_t draft_rows = row * static_cast<std::size_t>(options_.max_drafts);
  draft_memory_ = engine.budget().reserve("drafts", draft_rows * sizeof(float));
  logits_.resize(row + draft_rows);
}

std::unique_ptr<Job> Scheduler::prepare(AnswerRequest request, JobSink sink) const {
  const std::int64_t n_prompt = std::ssize(request.prompt);
  if (n_prompt == 0) fail(Errc::BadInput, "the prompt is empty");
  if (n_prompt > engine_.context_length()) {
    fail(Errc::LimitExceeded,
         "the prompt has {} tokens, but the context holds {} (raise it with -c)", n_prompt,
         engine_.context_length());
  }
  const std::int64_t n_vocab = engine_.config().n_vocab;
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] >= 0 && request.prompt[i] < n_vocab) continue;
    fail(Errc::BadInput, "token {} of the prompt is {}, outside of the model's vocabulary of {}", i,
         request.prompt[i], n_vocab);
  }
  if (options_.keep_every > 0) {
    for (std::int64_t at = options_.keep_every; at < n_prompt; at += options_.keep_every)
      request.keep_at.push_back(at);
  }
  std::sort(request.keep_at.begin(), request.keep_at.end());
  std::erase_if(request.keep_at, [&](std::int64_t at) { return at <= 0 || at >= n_prompt; });
  return std::make_unique<Job>(++last_id_, engine_, std::move(request), std::move(sink));
}

JobId Scheduler::submit(AnswerRequest request, JobSink sink) {
  auto job = prepare(std::move(request), std::move(sink));
  if (n_jobs() >= max_jobs()) {
    fail(Errc::LimitExceeded,
         "{} requests are running and {} wait, of which {} may; try again later", running_.size(),
         waiting_.size(), options_.max_waiting);
  }
  const JobId id = job->id;
  enqueue(std::move(job));
  return id;
}

void Scheduler::cancel(JobId id) {
  const auto mark = [&](const std::unique_ptr<Job>& job) {
    if (job->id == id) job->cancelled = true;
  };
  std::for_each(running_.begin(), running_.end(), mark);
  std::for_each(waiting_.begin(), waiting_.end(), mark);
}

void Scheduler::cancel_all() {
  for (const auto& job : running_) job->cancelled = true;
  for (const auto& job : waiting_) job->cancelled = true;
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = stats_;
  stats.n_waiting = waiting_.size();
  stats.n_running = static_cast<std::size_t>(
      std::count_if(running_.begin(), running_.end(),
                    [](const std::unique_ptr<Job>& job) { return !job->ended; }));
  return stats;
}

bool Scheduler::step() {
  const bool had_jobs = n_jobs() > 0;
  drop_cancelled();
  admit();
  const auto start = Job::Clock::now();
  const BankStats before = engine_.experts().stats().total();
  const std::uint64_t bytes_before = engine_.experts().stats().bytes_read;
  build_batch();
  if (!batch_.empty()) {
    const std::optional<Error> failure = run_batch();
    account(before, bytes_before);
    for (Job* job : served_) failure ? end_by(*job, *failure) : advance(*job);
    if (!failure) tell_drafter(seconds_since(start));
  }
  drop_ended();
  if (had_jobs && n_jobs() == 0) engine_.watch().publish();  // what is seen until there is more
  return n_jobs() > 0;
}

void Scheduler::drop_cancelled() {
  for (const auto& job : running_) {
    if (job->cancelled) end(*job, StopReason::Cancelled);
  }
  drop_ended();
  // Whoever is told may submit anew, so the queue is in order before anybody is.
  std::deque<std::unique_ptr<Job>> all = std::move(waiting_), gone;
  waiting_.clear();
  for (auto& job : all) (job->cancelled ? gone : waiting_).push_back(std::move(job));
  for (const auto& job : gone) end(*job, StopReason::Cancelled);
}

void Scheduler::drop_ended() {
  std::erase_if(running_, [](const std::unique_ptr<Job>& job) { return job->ended; });
}

void Scheduler::admit() {
  while (!waiting_.empty()) {
    Session* session = sessions_.take(waiting_.front()->answer.history());
    if (session == nullptr) break;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    begin(*running_.back(), session);
  }
  drop_ended();
}

void Scheduler::begin(Job& job, Session* session) {
  const std::vector<TokenId>& prompt = job.answer.history();
  job.session = session;
  job.last_pass = stats_.passes;
  job.stats.queue_seconds = job.lap();
  if (options_.changed) options_.changed();
  try {
    if (options_.hooks.sync)
      options_.hooks.sync(*session, prompt);
    else
      session->rewind(reusable_length(*session, prompt));
    MOEFLUX_ASSERT(session->length() < job.stats.n_prompt &&
                   std::equal(session->tokens().begin(), session->tokens().end(), prompt.begin()));
  } catch (const std::exception& cause) {
    session->reset();
    return end_by(job, error_of(cause));
  }
  job.stats.n_cached = session->length();
  job.emit(JobStarted{job.stats.n_prompt, job.stats.n_cached});
}

void Scheduler::build_batch() {
  std::vector<PassJob> jobs;
  for (const auto& job : running_) jobs.push_back({job->n_ready(), job->decodes(), job->last_pass});
  const std::int64_t max_rows = engine_.forward().max_tokens();
  const std::vector<std::int64_t> rows =
      plan_pass(jobs, {.max_rows = max_rows, .slice_rows = options_.slice_tokens});
  std::int64_t n_free = max_rows;
  for (const std::int64_t n : rows) n_free -= n;

  const auto n_decoding = static_cast<std::size_t>(
      std::count_if(jobs.begin(), jobs.end(), [](const PassJob& job) { return job.decodes; }));
  const bool drafts = n_decoding <= options_.draft_jobs;

  served_.clear();
  batch_.clear();
  last_pass_.clear();
  logits_used_ = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    Job& job = *running_[i];
    try {
      const std::int64_t n_drafts = drafts && job.decodes() ? add_drafts(job, n_free) : 0;
      n_free -= n_drafts;
      add_span(job, rows[i] + n_drafts);
    } catch (const std::exception& cause) {
      end_by(job, error_of(cause));
    }
  }
}

// Drafts what follows the token drawn last, as far as there is room for it.
std::int64_t Scheduler::add_drafts(Job& job, std::int64_t n_free) {
  const auto count = static_cast<int>(
      std::min<std::int64_t>({options_.max_drafts, n_free, job.answer.max_drafts()}));
  if (count <= 0 || !options_.hooks.draft) return 0;
  options_.hooks.draft(*job.session, job.answer.last(), count, job.drafts);
  MOEFLUX_ASSERT(std::ssize(job.drafts) <= count);
  return std::ssize(job.drafts);
}

void Scheduler::add_span(Job& job, std::int64_t n_rows) {
  const std::int64_t position = job.session->length(), n_drafts = std::ssize(job.drafts);
  Span span{.session = job.session,
            .tokens = {},
            .logits_of = LogitsOf::None,
            .n_drafts = n_drafts,
            .prompt_tokens =
                job.decodes() ? 0 : engine_.prompt_tokens(job.stats.n_prompt - job.stats.n_cached),
            .undo_on_failure = !job.decodes() && job.session->can_keep_before()};
  if (job.decodes()) {
    job.decoded.assign(1, job.answer.last());
    job.decoded.insert(job.decoded.end(), job.drafts.begin(), job.drafts.end());
    span.tokens = job.decoded;
  } else {
    span.tokens =
        std::span(job.answer.history())
            .subspan(static_cast<std::size_t>(position), static_cast<std::size_t>(n_rows));
  }
  if (options_.hooks.hidden) span.hidden = options_.hooks.hidden(*job.session, n_rows);
  if (n_rows >= job.n_pending()) {  // the next token follows from this pass
    const auto n_vocab = static_cast<std::size_t>(engine_.config().n_vocab);
    const std::size_t size = static_cast<std::size_t>(1 + n_drafts) * n_vocab;
    job.logits = std::span(logits_).subspan(logits_used_, size);
    logits_used_ += size;
    span.logits_of = n_drafts > 0 ? LogitsOf::EveryToken : LogitsOf::LastToken;
    span.logits = job.logits.data();
  }
  served_.push_back(&job);
  batch_.push_back(span);
  last_pass_.push_back({job.id, position, n_rows});
}

std::optional<Error> Scheduler::run_batch() {
  try {
    const auto abandoned = [&](const Job* job) { return options_.is_cancelled(job->id); };
    engine_.run(batch_, options_.observer, [&] {
      return options_.is_cancelled && std::all_of(served_.begin(), served_.end(), abandoned);
    });
    return std::nullopt;
  } catch (const std::exception& cause) {
    return error_of(cause);
  }
}

void Scheduler::tell_drafter(double seconds) {
  if (!options_.hooks.verified || served_.size() != 1) return;
  const Job& job = *served_[0];
  const std::int64_t position = last_pass_[0].position;  // the token drawn before the pass
  if (position < job.stats.n_prompt) return;
  options_.hooks.verified(std::ssize(job.answer.history()) - position - 1, seconds);
}

// Bytes are shared by rows, rounded so that all shares add up.
void Scheduler::account(const BankStats& before, std::uint64_t bytes_before) {
  const StreamerStats& experts = engine_.experts().stats();
  const BankStats total = experts.total();
  const std::uint64_t bytes = experts.bytes_read - bytes_before;
  stats_.experts_missed += total.misses - before.misses;
  stats_.experts_requested += total.hits + total.misses - before.hits - before.misses;
  stats_.bytes_read += bytes;
  ++stats_.passes;

  std::uint64_t n_rows = 0, row = 0;
  for (const PassPart& part : last_pass_) n_rows += static_cast<std::uint64_t>(part.n_rows);
  for (std::size_t i = 0; i < served_.size(); ++i) {
    Job& job = *served_[i];
    const auto n = static_cast<std::uint64_t>(last_pass_[i].n_rows);
    job.stats.bytes_read += bytes * (row + n) / n_rows - bytes * row / n_rows;
    row += n;
    job.last_pass = stats_.passes;
    (last_pass_[i].position < job.stats.n_prompt ? stats_.prompt_rows : stats_.decode_rows) += n;
  }
}

void Scheduler::advance(Job& job) {
  try {
    const std::int64_t n_done = job.session->length(), n_prompt = job.stats.n_prompt;
    if (n_done <= n_prompt) job.emit(JobProgress{n_done, n_prompt});
    if (n_done == n_prompt)
      remember(job, Milestone::Prompt);
    else if (job.keeps_here())
      remember(job, Milestone::Message);
    if (job.n_pending() <= 0) draw(job);
  } catch (const std::exception& cause) {  // such as nothing left to draw: no matter of the others
    end_by(job, error_of(cause));
  }
}

// One token follows from the last row. With drafts, each row but the first belongs to one, and
// counts as long as the tokens drawn are the drafted ones.
void Scheduler::draw(Job& job) {
  if (!job.answer.has_begun()) job.stats.prefill_seconds = job.lap();
  const auto n_vocab = static_cast<std::size_t>(engine_.config().n_vocab);
  const std::size_t n_drafts = job.drafts.size();
  std::size_t n_accepted = 0;
  while (job.answer.draw(sampler_, job.logits.subspan(n_accepted * n_vocab, n_vocab)) &&
         n_accepted < n_drafts && job.drafts[n_accepted] == job.answer.last())
    ++n_accepted;
  job.session->take_back(static_cast<std::int64_t>(n_drafts - n_accepted));
  stats_.n_drawn += 1 + n_accepted;
  job.stats.n_drafted += static_cast<std::int64_t>(n_drafts);
  job.stats.n_accepted += static_cast<std::int64_t>(n_accepted);
  job.drafts.clear();
  if (job.answer.has_ended()) end(job, job.answer.reason());
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

void Scheduler::end_by(Job& job, const Error& error) {
  if (error.code() == Errc::Cancelled) return end(job, StopReason::Cancelled);
  end(job, StopReason::Cancelled, error);
}

void Scheduler::end(Job& job, StopReason reason, std::optional<Error> error) {
  job.answer.end(reason);
  const bool has_answer = job.answer.has_begun();
  const double seconds = job.lap();
  (job.session == nullptr ? job.stats.queue_seconds
   : has_answer           ? job.stats.decode_seconds
                          : job.stats.prefill_seconds) += seconds;
  if (job.session != nullptr) {
    if (has_answer && !job.session->is_poisoned()) remember(job, Milestone::Answer);
    sessions_.give_back(job.session);
    job.session = nullptr;
  }
  reason = job.answer.reason();
  const bool cancelled = reason == StopReason::Cancelled;
  ++(error ? stats_.n_failed : cancelled ? stats_.n_cancelled : stats_.n_finished);
  job.ended = true;
  job.stats.n_tokens = std::ssize(job.answer.tokens());
  if (options_.changed) options_.changed();
  job.emit(JobEnded{reason, job.answer.stop(), std::move(error), job.stats});
}

}  // namespace moeflux
