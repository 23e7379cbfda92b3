// What an engine does, in the words of docs/SERVER.md: a frame as JSON, whole or as what has
// changed since the one before.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/json.h"
#include "engine/engine.h"
#include "server/service/run_report.h"

namespace moeflux {

// What never changes while a model is loaded.
struct WatchedModel {
  std::string family, precision, kv_type, backend;
  int n_threads = 0;
  std::int64_t context_length = 0;
  int n_parallel = 0;
  std::uint64_t dense_bytes_per_token = 0, expert_bytes_per_token = 0;
  std::uint64_t memory_ceiling = 0;
  std::vector<WatchedBank> banks;
};
WatchedModel watched_model(Engine& engine, int n_parallel);

// A frame, and what goes with it that is no business of the engine's thread.
struct EngineView {
  EngineFrame frame;
  std::uint64_t n_drawn = 0, n_prompt_rows = 0;  // tokens of answers and of prompts, so far
  std::size_t n_running = 0, n_waiting = 0;      // answers
  std::map<std::string, std::uint64_t> memory;   // bytes by owner
  std::uint64_t resident_bytes = 0;              // of the process, as the kernel counts; 0: unknown
};

// The parts of an event that are left out where they have not changed: "counters", "answers",
// "cache", "lookahead", "drafts", "memory", "machine".
Json engine_sections(const WatchedModel& model, const EngineView& view);

// The data of the event "state": everything.
std::string engine_state(const WatchedModel& model, const std::string& name, const EngineView& view,
                         const Json& sections);

// The data of the event "change": experts that have moved and experts that were asked for, and the
// sections that differ.
std::string engine_change(const std::vector<ExpertLocation>& locations_before,
                          const EngineFrame& frame, const Json& sections_before,
                          const Json& sections);

}  // namespace moeflux
