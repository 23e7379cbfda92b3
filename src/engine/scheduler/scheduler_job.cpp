#include "engine/scheduler/scheduler_job.h"

#include <algorithm>
#include <new>

namespace moeflux {

Job::Job(JobId job, const Engine& engine, AnswerRequest request, JobSink to)
    : id(job),
      sink(std::move(to)),
      answer(engine, std::move(request), engine.context_length(),
             {.on_token =
                  [this](TokenId token, std::span<const float> row) {
                    emit(JobToken{token, row, answer.drawn_from()});
                  },
              .on_text = [this](std::string_view text) { emit(JobText{text}); },
              .cancelled = [this] { return cancelled; }}) {
  stats.n_prompt = answer.n_prompt();
}

std::int64_t Job::n_ready() const {
  const std::vector<std::int64_t>& keep_at = answer.request().keep_at;
  const std::int64_t here = session->length();
  const auto next = std::upper_bound(keep_at.begin(), keep_at.end(), here);
  return next == keep_at.end() ? n_pending() : std::min(n_pending(), *next - here);
}

bool Job::keeps_here() const {
  const std::vector<std::int64_t>& keep_at = answer.request().keep_at;
  return std::binary_search(keep_at.begin(), keep_at.end(), session->length());
}

void Job::emit(const JobEvent& event) {
  if (!sink) return;
  try {
    sink(id, event);
  } catch (...) {  // whoever listened is gone: nobody is left to tell
    sink = {};
    cancelled = true;
  }
}

double Job::lap() {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - since).count();
  since = now;
  return seconds;
}

Error error_of(const std::exception& cause) {
  if (const auto* error = dynamic_cast<const Error*>(&cause)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&cause) != nullptr)
    return Error(Errc::OutOfMemory, "the system has no memory left");
  return Error(Errc::Unsupported, cause.what());
}

}  // namespace moeflux
