// The run report: what goes with an answer in every dialect, how long things took and what they
// cost, as measured. Its numbers are the engine's counters (read by the engine's thread only, then
// plain values), the facts of the model, and the totals of the answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/json.h"
#include "engine/engine.h"

namespace moeflux {

struct GenerationEnded;

// The engine's counters at one moment, or their difference between two.
struct EngineReading {
  std::uint64_t hits = 0, misses = 0;  // experts asked for
  std::uint64_t bytes_read = 0;
  double wait_seconds = 0;                            // the engine waited for a read
  std::uint64_t prefetched = 0, prefetches_used = 0;  // experts
  TimeHistogram read_time = {};                       // of experts, one read each
  std::uint64_t cache_slots = 0;
  std::uint64_t memory_bytes = 0;  // in use under the ceiling

  // As they are at the end.
  LookaheadGovernor::Report lookahead = {};
  DraftGovernor::Report drafts = {};

  double hit_rate() const;  // 1 where nothing was asked for
};

EngineReading read_engine(const Engine& engine);
EngineReading operator-(EngineReading after, const EngineReading& before);

// Facts of a model that do not change while it is loaded.
struct ModelFacts {
  int top_k = 0, n_experts = 0;
  double expert_bits = 0;  // stored bits per weight of an expert, scales included
  std::int64_t n_parameters = 0;
  std::uint64_t size_bytes = 0;  // of the weights
  std::string precision, kv_type;
};
ModelFacts read_facts(const Engine& engine);

// All answers to one request together.
struct AnswerTotals {
  std::int64_t n_prompt = 0, n_cached = 0;  // of each prompt once
  std::int64_t n_generated = 0, n_reasoning = 0;
  std::int64_t n_drafted = 0, n_accepted = 0;
  std::uint64_t bytes_read = 0;                                       // the request's share
  double queue_seconds = 0, prefill_seconds = 0, decode_seconds = 0;  // the longest
  EngineReading engine = {};                                          // of the last to end

  // `first` of those to the same prompt.
  void add(const GenerationEnded& ended, bool first);
};

// The totals of an answer while it is written, by the clock of who hears of its tokens.
class RunningTotals {
 public:
  void start(std::int64_t n_prompt, std::int64_t n_cached);
  void add_token();
  AnswerTotals totals() const;

 private:
  using Clock = std::chrono::steady_clock;
  std::int64_t n_prompt_ = 0, n_cached_ = 0, n_tokens_ = 0;
  Clock::time_point started_ = Clock::now(), first_{}, last_{};
};

// {"cache_n", "prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", ...}: prompt_n are the
// tokens that were computed.
Json timings_json(const AnswerTotals& totals);
// The object "moeflux".
Json run_report_json(const ModelFacts& facts, const AnswerTotals& totals);

}  // namespace moeflux
