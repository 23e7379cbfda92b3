// Jobs for tests of the scheduler: what one received, and what it must receive, computed without
// any scheduler.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "support/paths.h"
#include "support/random.h"

namespace moeflux::test {

inline EngineOptions scheduler_engine(int n_sessions) {
  EngineOptions options;
  options.n_threads = 1;  // the fewest that compete with other tests
  options.context_length = 160;
  options.max_batch = 64;
  options.n_sessions = n_sessions;
  options.memory_bytes = std::uint64_t{1} << 30;
  options.elastic = false;
  return options;
}

// Everything a job was told, in order.
struct Received {
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // [tokens.size(), n_vocab]
  std::string text;
  std::vector<std::int64_t> progress;
  std::optional<JobStarted> started;
  std::optional<JobEnded> ended;
  int n_events_after_the_end = 0;

  void operator()(const JobEvent& event) {
    if (ended) ++n_events_after_the_end;
    if (const auto* e = std::get_if<JobStarted>(&event)) started = *e;
    if (const auto* e = std::get_if<JobProgress>(&event)) progress.push_back(e->n_done);
    if (const auto* e = std::get_if<JobText>(&event)) text += e->text;
    if (const auto* e = std::get_if<JobEnded>(&event)) ended = *e;
    if (const auto* e = std::get_if<JobToken>(&event)) {
      tokens.push_back(e->id);
      logits.insert(logits.end(), e->logits.begin(), e->logits.end());
    }
  }
};

// A job that was submitted. Must stay where it is.
struct Submitted {
  AnswerRequest request;
  Received received;
  JobId id = 0;

  Submitted() = default;
  explicit Submitted(AnswerRequest r) : request(std::move(r)) {}
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;

  JobSink sink() {
    return [this](JobId job, const JobEvent& event) {
      id = job;
      received(event);
    };
  }
  void submit(Scheduler& scheduler) { id = scheduler.submit(request, sink()); }
  bool has_ended() const { return received.ended.has_value(); }
};

inline void run_all(Scheduler& scheduler) {
  while (scheduler.step()) {
  }
}

// The same request on a session of its own: one prompt, then token by token.
inline Received run_alone(Engine& engine, const AnswerRequest& request) {
  Received alone;
  Session session = engine.new_session();
  Sampler sampler;
  std::vector<TokenId> history = request.prompt;
  std::vector<float> logits = engine.prefill(session, request.prompt);
  while (true) {
    const TokenId token = sampler.sample({.logits = logits,
                                          .n_valid = static_cast<std::size_t>(engine.n_sampled()),
                                          .allowed = {},
                                          .history = history,
                                          .n_prompt = request.prompt.size(),
                                          .step = alone.tokens.size()},
                                         request.sampling);
    const auto& ends = engine.stop_tokens();
    if (!request.ignore_end && std::find(ends.begin(), ends.end(), token) != ends.end()) break;
    history.push_back(token);
    alone(JobToken{token, logits});
    if (request.max_tokens > 0 &&
        static_cast<std::int64_t>(alone.tokens.size()) >= request.max_tokens)
      break;
    if (session.length() == session.max_length()) break;
    const Span span{.session = &session, .tokens = {&token, 1}, .logits = logits.data()};
    engine.run({&span, 1});
  }
  return alone;
}

// A prompt of random tokens that the tokenizer knows.
inline AnswerRequest random_job(Random& random, std::int64_t n_prompt, std::int64_t max_tokens) {
  AnswerRequest request;
  request.prompt = random.tokens(n_prompt, 2000);
  request.max_tokens = max_tokens;
  request.ignore_end = true;
  request.sampling.temperature = 0;
  return request;
}

}  // namespace moeflux::test
