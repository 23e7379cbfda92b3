// The memory an engine takes, also before it is opened: for whoever has to find room for it.
#pragma once

#include <string>

#include "engine/engine.h"

namespace moeflux {

// What engine options mean for a model.
std::uint64_t memory_ceiling(const EngineOptions& options);
// Of the device's own memory; 0 where it has none.
std::uint64_t device_ceiling(const EngineOptions& options);
std::int64_t session_length(const EngineOptions& options, const ModelConfig& config);
MemoryPlan plan_engine(const ModelConfig& config, const ModelSizes& sizes,
                       const EngineOptions& options, std::uint64_t reader_bytes);

// The context to ask for: the given one, or where none is given as much of the usual one as the
// ceiling has room for; 0 where that would be too little. Reads headers only.
std::int64_t fitting_context(const std::string& path, const EngineOptions& options);

// The plan of Engine(path, options), also where it does not fit. Reads headers only. Throws Error
// for a model that cannot be opened.
MemoryPlan plan_model(const std::string& path, const EngineOptions& options);

}  // namespace moeflux
