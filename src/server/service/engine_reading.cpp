#include "server/service/engine_reading.h"

#include <algorithm>

#include "engine/model_catalog.h"

namespace moeflux {

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
  reading.guessed = stats.guessed;
  reading.guesses_used = stats.guesses_used;
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
  after.guessed -= before.guessed;
  after.guesses_used -= before.guesses_used;
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

}  // namespace moeflux
