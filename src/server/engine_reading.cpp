#include "server/engine_reading.h"

#include <algorithm>

#include "model/map_tensors.h"

namespace moeflux {
namespace {

struct ParameterCounter {
  std::int64_t* n;
  void operator()(const StoredMatrix& matrix) const { *n += matrix.rows * matrix.cols; }
  void operator()(const StoredVector&) const {}  // too few to count
};

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
  reading.guessed = stats.guessed;
  reading.guesses_used = stats.guesses_used;
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
  return after;
}

ModelFacts read_facts(const Engine& engine) {
  const ModelIndex& index = engine.description().index;
  ModelFacts facts;
  std::int64_t n_dense = 0, n_expert = 0;
  for_each_tensor(index.tensors, ParameterCounter{&n_dense});
  std::uint64_t expert_bytes = 0;
  for (const ExpertBank& bank : index.experts) {
    for (const StoredExpertBank* matrices : {&bank.gate, &bank.up, &bank.down}) {
      for (int i = 0; i < matrices->count(); ++i) {
        const StoredMatrix matrix = matrices->at(i);
        n_expert += matrix.rows * matrix.cols;
        expert_bytes += matrix.bytes();
      }
    }
  }
  for (const BankSize& bank : engine.sizes().banks)
    facts.n_experts = std::max(facts.n_experts, bank.n_experts);
  facts.top_k = engine.sizes().top_k();
  facts.n_parameters = n_dense + n_expert;
  facts.size_bytes = engine.sizes().dense_bytes + expert_bytes;
  if (n_expert > 0)
    facts.expert_bits = 8.0 * static_cast<double>(expert_bytes) / static_cast<double>(n_expert);
  facts.precision = precision_name(engine.precision());
  facts.kv_type = kv_type_name(engine.kv_type());
  return facts;
}

}  // namespace moeflux
