// A request to the scheduler on its way through it, and what comes back of it while it runs.
//
// Events of a job arrive in this order: JobStarted, JobProgress for every pass over its prompt,
// then JobToken and JobText as the answer grows, and exactly one JobEnded, whatever happens. A job
// that ends while it waits has only that one.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "engine/answer.h"
#include "runtime/session.h"

namespace moeflux {

using JobId = std::uint64_t;

struct JobStats {
  double queue_seconds = 0;    // until it had a session
  double prefill_seconds = 0;  // from there to the first token
  double decode_seconds = 0;   // from there to the end
  std::int64_t n_prompt = 0;
  std::int64_t n_cached = 0;  // of these, known to the session already
  std::int64_t n_tokens = 0;  // of the answer, without the end token
  std::int64_t n_drafted = 0, n_accepted = 0;
  // Its share of what was read for the passes it was in: by rows, so the shares of all jobs add up
  // to all that was read.
  std::uint64_t bytes_read = 0;
};

struct JobStarted {
  std::int64_t n_prompt, n_cached;
};
struct JobProgress {
  std::int64_t n_done, n_prompt;  // tokens; n_cached counts as done
};
struct JobToken {
  TokenId id;
  std::span<const float> logits;  // [n_vocab], what it was drawn from; only during the call
  std::span<const TokenProbability> drawn_from = {};  // Answer::drawn_from(); the same
};
struct JobText {
  std::string_view text;  // only during the call
};
struct JobEnded {
  StopReason reason;                     // says nothing when there is an error
  std::optional<std::size_t> stop = {};  // index of the stop string, for StopReason::StopString
  std::optional<Error> error = {};
  JobStats stats = {};
};
using JobEvent = std::variant<JobStarted, JobProgress, JobToken, JobText, JobEnded>;

// Called by the thread that runs the scheduler, between passes: it should only pass events on. One
// that throws is not called again, and its job is cancelled.
using JobSink = std::function<void(JobId, const JobEvent&)>;

// All that is to be done follows from two sequences: the answer's history is the prompt and then
// the answer so far, and the session's tokens are a prefix of it. What the session lacks is
// pending: the rest of the prompt, or the one token drawn last.
struct Job {
  using Clock = std::chrono::steady_clock;

  // `keep_at` of the request must be ascending and in range.
  Job(JobId id, const Engine& engine, AnswerRequest request, JobSink sink);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  JobId id;
  JobSink sink;
  Answer answer;
  JobStats stats = {};
  Clock::time_point since = Clock::now();  // it is in the state it is in

  Session* session = nullptr;         // null while it waits
  std::uint64_t last_pass = 0;        // that served it, or the last one before it had a session
  std::span<float> logits = {};       // of its rows in this pass: [1 or all, n_vocab]
  std::vector<TokenId> drafts = {};   // of this pass
  std::vector<TokenId> decoded = {};  // the rows of a pass that decodes: last token and drafts
  bool cancelled = false;
  bool ended = false;

  bool decodes() const { return session->length() >= stats.n_prompt; }
  std::int64_t n_pending() const { return std::ssize(answer.history()) - session->length(); }
  // Of these, what one pass may take: it ends where something is to be kept.
  std::int64_t n_ready() const;
  bool keeps_here() const;

  void emit(const JobEvent& event);
  // Seconds since the last call, or since the job was made.
  double lap();
};

// The error of a job that something went wrong with. What is no Error is a bug of ours, or the
// system out of memory.
Error error_of(const std::exception& cause);

}  // namespace moeflux
