// A request to the scheduler, and what comes back of it while it runs.
//
// Events of a job arrive in this order: JobStarted, JobProgress for every pass over its prompt,
// then JobToken and JobText as the answer grows, and exactly one JobEnded, whatever happens. A job
// that ends while it waits has only that one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/token_id.h"
#include "engine/generate.h"
#include "runtime/sampling/sampling_params.h"
#include "runtime/sampling/token_constraint.h"

namespace moeflux {

using JobId = std::uint64_t;

struct JobRequest {
  std::vector<TokenId> prompt = {};
  SamplingParams sampling = {};
  std::int64_t max_tokens = 0;                       // 0: as many as the context holds
  std::vector<TokenId> stop_tokens = {};             // besides the model's own
  std::vector<std::string> stop = {};                // texts that end the answer; not part of it
  std::vector<TokenId> shown_special = {};           // special tokens that are part of the text
  bool ignore_end = false;                           // go on past the model's own end tokens
  std::shared_ptr<TokenConstraint> constraint = {};  // what the answer may be; this job's own
  // Lengths of the prompt worth coming back to (the ends of its messages): passes end there, and
  // SessionHooks::remember is called.
  std::vector<std::int64_t> keep_at = {};
};

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

}  // namespace moeflux
