// What goes with an answer in every dialect: how long things took and what they cost, as measured.
#pragma once

#include "base/json.h"
#include "server/service/generation.h"

namespace moeflux {

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

// {"cache_n", "prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", ...}: prompt_n are the
// tokens that were computed.
Json timings_json(const AnswerTotals& totals);
// The object "moeflux".
Json truth_json(const ModelFacts& facts, const AnswerTotals& totals);

}  // namespace moeflux
