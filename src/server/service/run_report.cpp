#include "server/service/run_report.h"

#include <algorithm>

#include "engine/model_catalog.h"
#include "server/service/generation.h"

namespace moeflux {
namespace {

double per_second(std::int64_t n, double seconds) {
  return seconds > 0 ? static_cast<double>(n) / seconds : 0;
}

double each_ms(std::int64_t n, double seconds) {
  return n > 0 ? 1e3 * seconds / static_cast<double>(n) : 0;
}

double share(std::int64_t part, std::int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

}  // namespace

double EngineReading::hit_rate() const {
  const std::uint64_t all = hits + misses;
  return all == 0 ? 1.0 : static_cast<double>(hits) / static_cast<double>(all);
}

EngineReading read_engine(const Engine& engine) {
  const StreamerStats& stats = engine.experts().stats();
  const BankStats total = stats.total();
  EngineReading reading;
  reading.hits = total.hits;
  reading.misses = total.misses;
  reading.bytes_read = stats.bytes_read;
  reading.wait_seconds = static_cast<double>(total.wait_ns) / 1e9;
  reading.prefetched = stats.prefetched;
  reading.prefetches_used = stats.prefetches_used;
  reading.read_time = stats.read_time;
  reading.cache_slots = engine.plan().n_slots;
  reading.memory_bytes = engine.memory().ceiling() - engine.memory().available();
  reading.lookahead = engine.governor().report();
  reading.drafts = engine.draft_governor().report();
  return reading;
}

EngineReading operator-(EngineReading after, const EngineReading& before) {
  after.hits -= before.hits;
  after.misses -= before.misses;
  after.bytes_read -= before.bytes_read;
  after.wait_seconds -= before.wait_seconds;
  after.prefetched -= before.prefetched;
  after.prefetches_used -= before.prefetches_used;
  after.read_time -= before.read_time;
  return after;
}

ModelFacts read_facts(const Engine& engine) {
  const ParameterCount count = count_parameters(engine.description().index);
  ModelFacts facts;
  for (const BankSize& bank : engine.sizes().banks)
    facts.n_experts = std::max(facts.n_experts, bank.n_experts);
  facts.top_k = engine.sizes().top_k();
  facts.n_parameters = count.n_parameters;
  facts.size_bytes = engine.sizes().dense_bytes + count.expert_bytes;
  facts.expert_bits = count.expert_bits;
  facts.precision = precision_name(engine.precision());
  facts.kv_type = kv_type_name(engine.kv_type());
  return facts;
}

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

void RunningTotals::start(std::int64_t n_prompt, std::int64_t n_cached) {
  n_prompt_ = n_prompt;
  n_cached_ = n_cached;
  started_ = Clock::now();
}

void RunningTotals::add_token() {
  last_ = Clock::now();
  if (n_tokens_++ == 0) first_ = last_;
}

AnswerTotals RunningTotals::totals() const {
  const auto seconds = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  };
  AnswerTotals totals;
  totals.n_prompt = n_prompt_;
  totals.n_cached = n_cached_;
  totals.n_generated = n_tokens_;
  totals.prefill_seconds = n_tokens_ == 0 ? 0 : seconds(started_, first_);
  totals.decode_seconds = n_tokens_ == 0 ? 0 : seconds(first_, last_);
  return totals;
}

Json timings_json(const AnswerTotals& totals) {
  const std::int64_t n_computed = totals.n_prompt - totals.n_cached;
  // The first token comes with the prompt.
  const std::int64_t n_decoded = std::max<std::int64_t>(totals.n_generated - 1, 0);
  return {{"cache_n", totals.n_cached},
          {"prompt_n", n_computed},
          {"prompt_ms", totals.prefill_seconds * 1e3},
          {"prompt_per_token_ms", each_ms(n_computed, totals.prefill_seconds)},
          {"prompt_per_second", per_second(n_computed, totals.prefill_seconds)},
          {"predicted_n", totals.n_generated},
          {"predicted_ms", totals.decode_seconds * 1e3},
          {"predicted_per_token_ms", each_ms(n_decoded, totals.decode_seconds)},
          {"predicted_per_second", per_second(n_decoded, totals.decode_seconds)},
          {"queue_ms", totals.queue_seconds * 1e3},
          {"draft_n", totals.n_drafted},
          {"draft_n_accepted", totals.n_accepted}};
}

Json run_report_json(const ModelFacts& facts, const AnswerTotals& totals) {
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
            {"guessed", engine.prefetched},
            {"used", engine.prefetches_used}}},
          {"drafts",
           {{"drafted", totals.n_drafted},
            {"accepted", totals.n_accepted},
            {"acceptance", share(totals.n_accepted, totals.n_drafted)},
            {"depth", engine.drafts.depth},
            {"on_trial", engine.drafts.on_trial}}}};
}

}  // namespace moeflux
