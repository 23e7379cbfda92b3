// Runs the jobs of many users on one engine: the one owner of its sessions.
//
// step() makes one forward pass for all of them: a row for every job that decodes, and a slice of
// the prompts (plan_pass). Each expert is fetched once for all rows that chose it. What a
// job answers does not depend on its neighbours, on when it came, or on how its prompt was sliced:
// every row of a pass is computed on its own, and every draw depends on the job's seed and step
// alone.
//
// At most n_sessions jobs run; others wait, first come, first served, and beyond max_waiting are
// refused. A pass that fails ends the jobs that were in it, each with the cause, and nobody else.
// Used by one thread; SchedulerThread stands before it for many.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/scheduler/scheduler_job.h"
#include "engine/scheduler/scheduler_sessions.h"
#include "runtime/sampling/sampler.h"

namespace moeflux {

struct SchedulerOptions {
  int n_sessions = 1;              // as many as the engine was opened for
  std::size_t max_waiting = 64;    // jobs without a session
  std::int64_t slice_tokens = 64;  // of prompts in one pass, while others decode
  int max_drafts = 0;              // per job and pass; at most what the engine was opened for
  std::size_t draft_jobs = 1;      // drafts are made while at most so many decode
  std::int64_t keep_every = 0;     // tokens of a prompt, besides its keep_at; 0: never
  SessionHooks hooks = {};
  ForwardObserver* observer = nullptr;  // of every pass
  // Asked during a pass, from the thread that runs it: a pass all of whose jobs are cancelled is
  // broken off before its next layer. Empty: passes are made to the end.
  std::function<bool(JobId)> is_cancelled = {};
  // Told, from that thread, when a job has got a session and when one has ended, before the job's
  // own event: stats() says something new.
  std::function<void()> changed = {};
};

struct SchedulerStats {
  std::uint64_t passes = 0;
  std::uint64_t prompt_rows = 0, decode_rows = 0;  // drafts are rows
  std::uint64_t n_drawn = 0;                       // tokens of answers
  std::uint64_t experts_requested = 0;             // once for all rows of a pass
  std::uint64_t experts_missed = 0;
  std::uint64_t bytes_read = 0;  // of experts: missed, prefetched and warmed
  std::uint64_t n_finished = 0, n_cancelled = 0, n_failed = 0;  // jobs
  std::uint64_t n_not_remembered = 0;
  std::size_t n_waiting = 0, n_running = 0;

  std::uint64_t rows() const { return prompt_rows + decode_rows; }
};

// Which rows the next pass has, as a pure function. Every job that decodes has its row in every
// pass. Prompts share what is left: the one served longest ago first, the whole slice if it needs
// it, the next one the rest. While somebody decodes, a slice is bounded, so a long prompt delays
// the others' next token by a bounded amount; alone, prompts get all rows. A batch too small for
// one row per job serves the jobs in turn.
struct PassJob {
  std::int64_t n_pending;   // rows it could use now: tokens its session has not seen
  bool decodes;             // n_pending is 1, and another row follows from it
  std::uint64_t last_pass;  // that served it; at first, the last one before it came
};

struct PassLimits {
  std::int64_t max_rows;    // of a pass
  std::int64_t slice_rows;  // of prompts, while others decode
};

// Rows of each job, in the order given; equals are served in that order. Some job gets a row unless
// there is none.
std::vector<std::int64_t> plan_pass(std::span<const PassJob> jobs, const PassLimits& limits);

class Scheduler {
 public:
  // `engine` must outlive this, and nobody else runs it. Throws Error(OutOfMemory) where it was
  // opened for fewer sessions.
  Scheduler(Engine& engine, SchedulerOptions options);

  // Events come from step(), which may also be told of new and cancelled jobs by their receivers.
  // Throws Error: BadInput for a request that cannot be run, LimitExceeded for a prompt longer than
  // the context and for one more job than may wait.
  JobId submit(AnswerRequest request, JobSink sink);

  // The job ends before the next pass. Nothing happens where it has ended already.
  void cancel(JobId id);
  void cancel_all();

  // One forward pass, or none when nothing is left to do. False: every job has ended.
  bool step();

  SchedulerStats stats() const;
  std::size_t n_jobs() const { return running_.size() + waiting_.size(); }
  std::size_t max_jobs() const { return sessions_.size() + options_.max_waiting; }

  // submit() in two steps, without the limit of waiting jobs. Any thread may do the first: it
  // touches only what never changes.
  std::unique_ptr<Job> prepare(AnswerRequest request, JobSink sink) const;
  void enqueue(std::unique_ptr<Job> job) { waiting_.push_back(std::move(job)); }

  // What the last pass consisted of.
  struct PassPart {
    JobId job;
    std::int64_t position;  // of its first row
    std::int64_t n_rows;
  };
  const std::vector<PassPart>& last_pass() const { return last_pass_; }

 private:
  // Who is in the next pass.
  void drop_cancelled();
  void drop_ended();
  void admit();
  void begin(Job& job, Session* session);
  void build_batch();
  std::int64_t add_drafts(Job& job, std::int64_t n_free);
  void add_span(Job& job, std::int64_t n_rows);
  std::optional<Error> run_batch();  // why it failed, if it did
  void tell_drafter(double seconds);
  void account(const BankStats& before, std::uint64_t bytes_before);

  // What a pass means for a job.
  void advance(Job& job);
  void draw(Job& job);
  void remember(Job& job, Milestone milestone);
  void end(Job& job, StopReason reason, std::optional<Error> error = {});
  void end_by(Job& job, const Error& error);

  Engine& engine_;
  SchedulerOptions options_;
  SessionPool sessions_;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<std::unique_ptr<Job>> running_;  // in the order they came
  Sampler sampler_;
  MemoryBudget::Reservation draft_memory_;
  std::vector<float> logits_;  // [n_sessions * (1 + max_drafts), n_vocab]
  std::size_t logits_used_ = 0;
  // The pass being made: one entry of each for every job in it.
  std::vector<Job*> served_;
  std::vector<Span> batch_;
  std::vector<PassPart> last_pass_;
  SchedulerStats stats_;
  mutable std::atomic<JobId> last_id_{0};
};

}  // namespace moeflux
