#include "server/service/run_report.h"

#include <algorithm>

namespace moeflux {
namespace {

double per_second(std::int64_t n, double seconds) {
  return seconds > 0 ? static_cast<double>(n) / seconds : 0;
}

double share(std::int64_t part, std::int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

}  // namespace

void AnswerTotals::add(const GenerationEnded& ended, bool first) {
  const JobStats& stats = ended.stats;
  if (first) {
    n_prompt += stats.n_prompt;
    n_cached += stats.n_cached;
  }
  n_generated += stats.n_tokens;
  n_reasoning += ended.n_reasoning;
  n_drafted += stats.n_drafted;
  n_accepted += stats.n_accepted;
  bytes_read += stats.bytes_read;
  queue_seconds = std::max(queue_seconds, stats.queue_seconds);
  prefill_seconds = std::max(prefill_seconds, stats.prefill_seconds);
  decode_seconds = std::max(decode_seconds, stats.decode_seconds);
  engine = ended.engine;
}

Json timings_json(const AnswerTotals& totals) {
  const std::int64_t n_computed = totals.n_prompt - totals.n_cached;
  // The first token comes with the prompt.
  const std::int64_t n_decoded = std::max<std::int64_t>(totals.n_generated - 1, 0);
  return {{"cache_n", totals.n_cached},
          {"prompt_n", n_computed},
          {"prompt_ms", totals.prefill_seconds * 1e3},
          {"prompt_per_second", per_second(n_computed, totals.prefill_seconds)},
          {"predicted_n", totals.n_generated},
          {"predicted_ms", totals.decode_seconds * 1e3},
          {"predicted_per_second", per_second(n_decoded, totals.decode_seconds)},
          {"queue_ms", totals.queue_seconds * 1e3},
          {"draft_n", totals.n_drafted},
          {"draft_n_accepted", totals.n_accepted}};
}

Json truth_json(const ModelFacts& facts, const AnswerTotals& totals) {
  const EngineReading& engine = totals.engine;
  return {{"top_k", facts.top_k},
          {"n_experts", facts.n_experts},
          {"expert_bits", facts.expert_bits},
          {"precision", facts.precision},
          {"kv", facts.kv_type},
          {"cached_tokens", totals.n_cached},
          {"bytes_read", totals.bytes_read},
          {"experts",
           {{"hits", engine.hits},
            {"misses", engine.misses},
            {"hit_rate", engine.hit_rate()},
            {"bytes_read", engine.bytes_read},
            {"wait_seconds", engine.wait_seconds},
            {"cache_slots", engine.cache_slots}}},
          {"lookahead",
           {{"width", engine.lookahead.width},
            {"on_trial", engine.lookahead.on_trial},
            {"guessed", engine.guessed},
            {"used", engine.guesses_used}}},
          {"drafts",
           {{"drafted", totals.n_drafted},
            {"accepted", totals.n_accepted},
            {"acceptance", share(totals.n_accepted, totals.n_drafted)},
            {"depth", engine.drafts.depth},
            {"on_trial", engine.drafts.on_trial}}}};
}

}  // namespace moeflux
