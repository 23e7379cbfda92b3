#include "server/service/reading_service.h"

#include <algorithm>

#include "base/error.h"

namespace moeflux {

ReadingService::Cancel ReadingService::start(Request request, std::function<void(Result)> done) {
  const auto job = std::make_shared<Job>();
  job->request = std::move(request);
  job->done = std::move(done);
  const std::lock_guard lock(mutex_);
  if (closed_) fail(Errc::Cancelled, "the engine is shutting down and takes no more requests");
  if (jobs_.size() > max_waiting_) {
    fail(Errc::LimitExceeded, "{} requests to read texts are running or waiting; try again later",
         jobs_.size());
  }
  if (!pumping_) scheduler_->post([this](Scheduler&) { pump(); });
  pumping_ = true;
  jobs_.push_back(job);
  return [weak = std::weak_ptr(job)] {
    if (const auto known = weak.lock()) known->cancelled = true;
  };
}

// One pass of the first request, on the engine's thread.
void ReadingService::pump() {
  std::shared_ptr<Job> job;
  {
    const std::lock_guard lock(mutex_);
    job = jobs_.front();
  }
  try {
    if (job->cancelled) fail(Errc::Cancelled, "the request was cancelled");
    if (!advance(*job)) end(std::move(job->rows));
  } catch (const std::exception& cause) {
    end(error_of(cause));
  }
  const std::lock_guard lock(mutex_);
  pumping_ = !jobs_.empty();
  if (!pumping_) return;
  try {
    scheduler_->post([this](Scheduler&) { pump(); });
  } catch (const Error& error) {
    end_all(error);
    pumping_ = false;
  }
}

bool ReadingService::advance(Job& job) {
  const auto& texts = job.request.texts;
  if (job.next == texts.size()) return false;
  if (!job.reading) {
    std::size_t longest = 0;
    for (const auto& text : texts) longest = std::max(longest, text.size());
    job.reading = std::make_unique<TextReading>(engine_, static_cast<std::int64_t>(longest));
  }
  if (!job.in_text) job.reading->begin(texts[job.next], job.request.kind);
  job.in_text = job.reading->step([&] { return job.cancelled.load(); });
  if (job.in_text) return true;
  const std::vector<float>& result = job.reading->result();
  job.rows.push_back(job.request.reduce ? job.request.reduce(result) : result);
  return ++job.next < texts.size();
}

void ReadingService::end(const Result& result) {
  std::shared_ptr<Job> job;
  {
    const std::lock_guard lock(mutex_);
    job = std::move(jobs_.front());
    jobs_.pop_front();
    if (jobs_.empty()) idle_.notify_all();
  }
  job->reading.reset();  // gives its memory back
  tell(*job, result);
}

// A receiver that fails has nobody to tell, and must not keep the others from their turn.
void ReadingService::tell(Job& job, const Result& result) {
  try {
    job.done(result);
  } catch (...) {
  }
}

// With the mutex held.
void ReadingService::end_all(const Error& error) {
  for (const auto& job : jobs_) {
    job->reading.reset();
    tell(*job, error);
  }
  jobs_.clear();
  idle_.notify_all();
}

void ReadingService::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool ReadingService::wait_until_idle(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, at_most, [this] { return jobs_.empty(); });
}

}  // namespace moeflux
