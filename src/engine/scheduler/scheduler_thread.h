// The scheduler for many threads: a thread of its own runs it, everybody else only touches queues.
//
// The engine belongs to that thread from construction to stop(). Events of jobs are reported on it,
// between passes: a receiver hands them to its own thread and returns. Receivers may call submit(),
// cancel() and post(), but not drain() or stop().
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/scheduler/scheduler.h"

namespace moeflux {

class SchedulerThread {
 public:
  SchedulerThread(Engine& engine, SchedulerOptions options);
  ~SchedulerThread();  // stop()
  SchedulerThread(const SchedulerThread&) = delete;
  SchedulerThread& operator=(const SchedulerThread&) = delete;

  // As Scheduler::submit(); also throws Error(Cancelled) after drain() or stop(). Its events may
  // come before this returns, so an id is known to a receiver first by its events.
  JobId submit(AnswerRequest request, JobSink sink);

  // The job ends before the next pass.
  void cancel(JobId id);

  // Runs `work` on the engine's thread between two passes: for all that needs the engine itself.
  // One that throws is none of our business: whoever waits for it must see to that. Throws
  // Error(Cancelled) after stop().
  void post(std::function<void(Scheduler&)> work);

  // Takes no more jobs, and returns when all have ended, or after so long. False: some go on.
  bool drain(std::optional<std::chrono::milliseconds> at_most = {});

  // Takes no more jobs, cancels all, and returns when they have ended and the thread is gone.
  void stop();

  // Jobs as they are now: one whose receiver was told of its end does not count any more. The rest
  // as of the last pass.
  SchedulerStats stats() const;

 private:
  struct Inbox {
    std::vector<std::unique_ptr<Job>> jobs;
    std::vector<JobId> cancelled;
    std::vector<std::function<void(Scheduler&)>> work;
    bool empty() const { return jobs.empty() && cancelled.empty() && work.empty(); }
  };

  void run();
  void deliver(Inbox inbox);
  bool is_cancelled(JobId id) const;  // since the last delivery
  void note_stats();                  // for others to read

  Scheduler scheduler_;  // after construction used by thread_ only, but for prepare()
  const std::size_t max_jobs_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  Inbox inbox_;
  std::size_t n_jobs_ = 0;         // submitted and not gone from the scheduler
  std::size_t n_undelivered_ = 0;  // of these, the scheduler does not know yet
  SchedulerStats stats_;
  bool closed_ = false;  // no more jobs
  bool stopping_ = false;

  std::mutex join_mutex_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace moeflux
