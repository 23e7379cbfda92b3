#include "engine/scheduler/scheduler.h"

#include <algorithm>

#include "base/error.h"
#include "engine/scheduler/scheduler_pass.h"

namespace moeflux {

double SchedulerStats::bytes_per_row() const {
  return rows() == 0 ? 0 : static_cast<double>(bytes_read) / static_cast<double>(rows());
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

std::unique_ptr<Job> Scheduler::prepare(JobRequest request, JobSink sink) const {
  request.sampling.validate();
  const auto n_prompt = static_cast<std::int64_t>(request.prompt.size());
  if (n_prompt == 0) fail(Errc::BadInput, "the prompt is empty");
  if (n_prompt > engine_.context_length()) {
    fail(Errc::LimitExceeded,
         "the prompt has {} tokens, but the context holds {} (raise it with -c)", n_prompt,
         engine_.context_length());
  }
  if (request.max_tokens < 0)
    fail(Errc::BadInput, "max_tokens is {}, but must not be negative", request.max_tokens);
  const std::int64_t n_vocab = engine_.config().n_vocab;
  for (std::size_t i = 0; i < request.prompt.size(); ++i) {
    if (request.prompt[i] >= 0 && request.prompt[i] < n_vocab) continue;
    fail(Errc::BadInput, "token {} of the prompt is {}, outside of the model's vocabulary of {}", i,
         request.prompt[i], n_vocab);
  }

  auto job = std::make_unique<Job>();
  job->id = ++last_id_;
  if (engine_.has_tokenizer() || !request.stop.empty())
    job->text.emplace(engine_.tokenizer(), std::move(request.stop),
                      std::move(request.shown_special));
  if (options_.keep_every > 0) {
    for (std::int64_t at = options_.keep_every; at < n_prompt; at += options_.keep_every)
      request.keep_at.push_back(at);
  }
  std::sort(request.keep_at.begin(), request.keep_at.end());
  std::erase_if(request.keep_at, [&](std::int64_t at) { return at <= 0 || at >= n_prompt; });
  job->history = std::move(request.prompt);
  job->request = std::move(request);
  job->sink = std::move(sink);
  job->stats.n_prompt = n_prompt;
  return job;
}

JobId Scheduler::submit(JobRequest request, JobSink sink) {
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
  drop_cancelled();
  admit();
  const auto start = Job::Clock::now();
  const BankStats before = engine_.experts().stats().total();
  const std::uint64_t bytes_before = engine_.experts().stats().bytes_read;
  build_batch();
  if (!batch_.empty()) {
    const std::optional<JobEnded> failure = run_batch();
    account(before, bytes_before);
    for (Job* job : served_) failure ? end(*job, *failure) : advance(*job);
    if (!failure) tell_drafter(std::chrono::duration<double>(Job::Clock::now() - start).count());
  }
  drop_ended();
  return n_jobs() > 0;
}

void Scheduler::drop_cancelled() {
  for (const auto& job : running_) {
    if (job->cancelled) end(*job, {.reason = StopReason::Cancelled});
  }
  drop_ended();
  // Whoever is told may submit anew, so the queue is in order before anybody is.
  std::deque<std::unique_ptr<Job>> all = std::move(waiting_), gone;
  waiting_.clear();
  for (auto& job : all) (job->cancelled ? gone : waiting_).push_back(std::move(job));
  for (const auto& job : gone) end(*job, {.reason = StopReason::Cancelled});
}

void Scheduler::drop_ended() {
  std::erase_if(running_, [](const std::unique_ptr<Job>& job) { return job->ended; });
}

void Scheduler::admit() {
  while (!waiting_.empty()) {
    Session* session = sessions_.take(waiting_.front()->history);
    if (session == nullptr) break;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    begin(*running_.back(), session);
  }
  drop_ended();
}

void Scheduler::begin(Job& job, Session* session) {
  job.session = session;
  job.last_pass = stats_.passes;
  job.stats.queue_seconds = job.lap();
  if (options_.changed) options_.changed();
  try {
    if (options_.hooks.sync)
      options_.hooks.sync(*session, job.history);
    else
      session->rewind(reusable_length(*session, job.history));
    MOEFLUX_ASSERT(
        session->length() < job.stats.n_prompt &&
        std::equal(session->tokens().begin(), session->tokens().end(), job.history.begin()));
  } catch (const std::exception& cause) {
    session->reset();
    return end(job, failed(cause));
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
      end(job, failed(cause));
    }
  }
}

// Guesses what follows the token drawn last, as far as there is room for it.
std::int64_t Scheduler::add_drafts(Job& job, std::int64_t n_free) {
  std::int64_t count = std::min<std::int64_t>(options_.max_drafts, n_free);
  count = std::min(count, job.session->max_length() - job.session->length() - 1);
  if (job.request.max_tokens > 0)  // the last token of an answer is never run
    count = std::min(count, job.request.max_tokens - job.stats.n_tokens - 1);
  if (count <= 0 || !options_.hooks.draft) return 0;
  options_.hooks.draft(*job.session, job.history.back(), static_cast<int>(count), job.drafts);
  MOEFLUX_ASSERT(static_cast<std::int64_t>(job.drafts.size()) <= count);
  job.history.insert(job.history.end(), job.drafts.begin(), job.drafts.end());
  return static_cast<std::int64_t>(job.drafts.size());
}

void Scheduler::add_span(Job& job, std::int64_t n_rows) {
  const auto n_drafts = static_cast<std::int64_t>(job.drafts.size());
  Span span{.session = job.session,
            .tokens = job.pending().first(static_cast<std::size_t>(n_rows)),
            .logits_of = LogitsOf::None,
            .n_drafts = n_drafts,
            .prompt_tokens =
                job.decodes() ? 0 : engine_.prompt_tokens(job.stats.n_prompt - job.stats.n_cached),
            .undo_on_failure = !job.decodes() && job.session->can_keep_before()};
  if (options_.hooks.hidden) span.hidden = options_.hooks.hidden(*job.session, n_rows);
  if (span.tokens.size() == job.pending().size()) {  // the next token follows from this pass
    const auto n_vocab = static_cast<std::size_t>(engine_.config().n_vocab);
    const std::size_t size = static_cast<std::size_t>(1 + n_drafts) * n_vocab;
    job.logits = std::span(logits_).subspan(logits_used_, size);
    logits_used_ += size;
    span.logits_of = n_drafts > 0 ? LogitsOf::EveryToken : LogitsOf::LastToken;
    span.logits = job.logits.data();
  }
  served_.push_back(&job);
  batch_.push_back(span);
  last_pass_.push_back({job.id, job.session->length(), n_rows});
}

std::optional<JobEnded> Scheduler::run_batch() {
  try {
    const auto abandoned = [&](const Job* job) { return options_.is_cancelled(job->id); };
    engine_.run(batch_, options_.observer, [&] {
      return options_.is_cancelled && std::all_of(served_.begin(), served_.end(), abandoned);
    });
    return std::nullopt;
  } catch (const Error& error) {
    if (error.code() == Errc::Cancelled) return JobEnded{.reason = StopReason::Cancelled};
    return failed(error);
  } catch (const std::exception& cause) {
    return failed(cause);
  }
}

void Scheduler::tell_drafter(double seconds) {
  if (!options_.hooks.verified || served_.size() != 1) return;
  const Job& job = *served_[0];
  const std::int64_t position = last_pass_[0].position;  // the token drawn before the pass
  if (position < job.stats.n_prompt) return;
  options_.hooks.verified(static_cast<std::int64_t>(job.history.size()) - position - 1, seconds);
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

void Scheduler::end(Job& job, JobEnded how) {
  if (job.text && !how.stop) {
    const StopMatcher::Output rest = job.text->finish();
    if (!rest.text.empty()) job.emit(JobText{rest.text});
    if (rest.stopped_by && !how.error) how.reason = StopReason::StopString;
    how.stop = rest.stopped_by;
  }
  const bool has_answer = static_cast<std::int64_t>(job.history.size()) > job.stats.n_prompt;
  const double seconds = job.lap();
  (job.session == nullptr ? job.stats.queue_seconds
   : has_answer           ? job.stats.decode_seconds
                          : job.stats.prefill_seconds) += seconds;
  if (job.session != nullptr) {
    if (has_answer && !job.session->is_poisoned()) remember(job, Milestone::Answer);
    sessions_.give_back(job.session);
    job.session = nullptr;
  }
  const bool cancelled = how.reason == StopReason::Cancelled;
  ++(how.error ? stats_.n_failed : cancelled ? stats_.n_cancelled : stats_.n_finished);
  job.ended = true;
  how.stats = job.stats;
  if (options_.changed) options_.changed();
  job.emit(how);
}

}  // namespace moeflux
