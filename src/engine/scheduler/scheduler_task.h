// One job on its way through the scheduler.
//
// All that is to be done follows from two sequences: `history` is the prompt and then the answer so
// far, and the session's tokens are a beginning of it. What the session lacks is the job's pending
// rows: the rest of the prompt, or the one token drawn last and, during a pass, guesses after it.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "engine/scheduler/scheduler_job.h"
#include "engine/text_output.h"
#include "runtime/session.h"

namespace moeflux {

struct Job {
  using Clock = std::chrono::steady_clock;

  JobId id = 0;
  JobRequest request = {};  // its prompt is in `history`, its keep_at ascending and in range
  JobSink sink = {};
  std::optional<TextOutput> text = {};  // none where the model has no tokenizer
  std::vector<TokenId> history = {};
  JobStats stats = {};
  Clock::time_point since = Clock::now();  // it is in the state it is in

  Session* session = nullptr;        // null while it waits
  std::uint64_t last_pass = 0;       // that served it, or the last one before it had a session
  std::span<float> logits = {};      // of its rows in this pass: [1 or all, n_vocab]
  std::vector<TokenId> drafts = {};  // of this pass, the last ones of `history`
  bool cancelled = false;
  bool ended = false;

  bool decodes() const { return session->length() >= stats.n_prompt; }
  std::span<const TokenId> pending() const {
    return std::span(history).subspan(static_cast<std::size_t>(session->length()));
  }
  // Of these, what one pass may take: it ends where something is to be kept.
  std::int64_t n_ready() const;
  bool keeps_here() const;

  void emit(const JobEvent& event);
  // Seconds since the last call, or since the job was made.
  double lap();
};

// How a job ends that something went wrong with. What is no Error is a bug of ours, or the system
// out of memory.
JobEnded failed(const std::exception& cause);

}  // namespace moeflux
