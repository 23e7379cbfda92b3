#include "engine/scheduler/scheduler_thread.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moeflux {

SchedulerThread::SchedulerThread(Engine& engine, SchedulerOptions options)
    : scheduler_(engine,
                 [&] {
                   options.is_cancelled = [this](JobId id) { return is_cancelled(id); };
                   options.changed = [this] { note_stats(); };
                   return std::move(options);
                 }()),
      max_jobs_(scheduler_.max_jobs()),
      thread_([this] { run(); }) {}

SchedulerThread::~SchedulerThread() {
  stop();
}

JobId SchedulerThread::submit(AnswerRequest request, JobSink sink) {
  auto job = scheduler_.prepare(std::move(request), std::move(sink));
  const JobId id = job->id;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) fail(Errc::Cancelled, "the engine is shutting down and takes no more requests");
    if (n_jobs_ >= max_jobs_) {
      fail(Errc::LimitExceeded,
           "{} requests are running or waiting, and {} are as many as may; try again later",
           n_jobs_, max_jobs_);
    }
    ++n_jobs_;
    ++n_undelivered_;
    inbox_.jobs.push_back(std::move(job));
  }
  wake_.notify_one();
  return id;
}

void SchedulerThread::cancel(JobId id) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.cancelled.push_back(id);
  }
  wake_.notify_one();
}

bool SchedulerThread::is_cancelled(JobId id) const {
  const std::lock_guard lock(mutex_);
  return stopping_ ||
         std::find(inbox_.cancelled.begin(), inbox_.cancelled.end(), id) != inbox_.cancelled.end();
}

void SchedulerThread::post(std::function<void(Scheduler&)> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) fail(Errc::Cancelled, "the engine has been stopped");
    inbox_.work.push_back(std::move(work));
  }
  wake_.notify_one();
}

bool SchedulerThread::drain(std::optional<std::chrono::milliseconds> at_most) {
  const auto is_done = [this] { return n_jobs_ == 0; };
  std::unique_lock lock(mutex_);
  closed_ = true;
  if (at_most) return idle_.wait_for(lock, *at_most, is_done);
  idle_.wait(lock, is_done);
  return true;
}

void SchedulerThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    stopping_ = true;
  }
  wake_.notify_one();
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

SchedulerStats SchedulerThread::stats() const {
  const std::lock_guard lock(mutex_);
  SchedulerStats stats = stats_;
  stats.n_waiting += n_undelivered_;
  return stats;
}

void SchedulerThread::note_stats() {
  const std::lock_guard lock(mutex_);
  stats_ = scheduler_.stats();
}

void SchedulerThread::deliver(Inbox inbox) {
  for (auto& job : inbox.jobs) scheduler_.enqueue(std::move(job));
  {
    const std::lock_guard lock(mutex_);
    n_undelivered_ -= inbox.jobs.size();
    stats_ = scheduler_.stats();
  }
  for (const JobId id : inbox.cancelled) scheduler_.cancel(id);
  for (const auto& work : inbox.work) {
    try {
      work(scheduler_);
    } catch (...) {
    }
  }
}

void SchedulerThread::run() {
  bool busy = false;
  while (true) {
    Inbox inbox;
    bool stopping;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return busy || stopping_ || !inbox_.empty(); });
      std::swap(inbox, inbox_);
      stopping = stopping_;
    }
    deliver(std::move(inbox));
    if (stopping) scheduler_.cancel_all();
    busy = scheduler_.step();

    const std::lock_guard lock(mutex_);
    stats_ = scheduler_.stats();
    n_jobs_ = scheduler_.n_jobs() + inbox_.jobs.size();
    if (n_jobs_ == 0) idle_.notify_all();
    if (stopping && !busy && inbox_.empty()) return;
  }
}

}  // namespace moeflux
