// One answer on its way from the scheduler to a dialect: turns the events of a job into those of a
// generation. Lives on the engine's thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "engine/engine.h"
#include "server/service/generation.h"
#include "server/service/generation_prompt.h"
#include "server/service/service_metrics.h"

namespace moeflux {

class ReplyStream {
 public:
  struct Options {
    int choice = 0;
    std::optional<int> top_logprobs = {};
    bool report_tokens = false;
    std::vector<std::string> stop = {};
  };
  // `engine` and `metrics` must outlive it.
  ReplyStream(const Engine& engine, ServiceMetrics& metrics, const GenerationPrompt& prompt,
              Options options, GenerationSink sink);

  void take(const JobEvent& event);

 private:
  void on(const JobStarted& event);
  void on(const JobProgress& event);
  void on(const JobToken& event);
  void on(const JobText& event);
  void on(const JobEnded& event);
  void begin_parser(const GenerationPrompt& prompt);
  void drop_begun(ReplyPieces& pieces);
  void emit(ReplyPieces pieces);
  void report_token(const JobToken& event);
  void report_drawn(const JobToken& event);
  TokenCandidate candidate(TokenId id, float log_probability) const;

  using Clock = std::chrono::steady_clock;
  const Engine& engine_;
  ServiceMetrics& metrics_;
  Options options_;
  GenerationSink sink_;
  std::unique_ptr<ReplyParser> parser_;  // null: the text is content as it is
  std::string begun_left_;  // of what the prompt had begun, what the parser has not let out yet
  JobStarted start_{0, 0};
  EngineReading before_;
  Clock::time_point submitted_ = Clock::now(), started_{}, last_token_{};
  bool has_started_ = false, has_token_ = false;
  bool in_thought_;
  bool has_calls_ = false;
  std::int64_t n_reasoning_ = 0;
};

}  // namespace moeflux
