// The memory an engine would take, before it is opened: for whoever has to find room for it.
#pragma once

#include <string>

#include "engine/engine.h"

namespace moeflux {

// The plan of Engine(path, options), also where it does not fit. Reads headers only. Throws Error
// for a model that cannot be opened.
MemoryPlan plan_model(const std::string& path, const EngineOptions& options);

}  // namespace moeflux
