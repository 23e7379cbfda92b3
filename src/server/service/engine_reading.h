// What the engine's counters say at one moment, or what happened between two: the truth that goes
// with every answer. Read by the engine's thread only, then a plain value.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "engine/engine.h"

namespace moeflux {

struct EngineReading {
  std::uint64_t hits = 0, misses = 0;  // experts asked for
  std::uint64_t bytes_read = 0;
  double wait_seconds = 0;  // the engine stood still for a read
  std::uint64_t guessed = 0, guesses_used = 0;
  TimeHistogram read_time = {};  // of experts, one read each
  std::uint64_t cache_slots = 0;
  std::uint64_t memory_bytes = 0;  // in use under the ceiling

  // As they are at the end.
  LookaheadGovernor::Report lookahead = {};
  DraftGovernor::Report drafts = {};

  double hit_rate() const;  // 1 where nothing was asked for
};

EngineReading read_engine(const Engine& engine);
EngineReading operator-(EngineReading after, const EngineReading& before);

// What never changes while a model is loaded.
struct ModelFacts {
  int top_k = 0, n_experts = 0;
  double expert_bits = 0;  // stored bits per weight of an expert, scales included
  std::int64_t n_parameters = 0;
  std::uint64_t size_bytes = 0;  // of the weights
  std::string precision, kv_type;
};
ModelFacts read_facts(const Engine& engine);

}  // namespace moeflux
