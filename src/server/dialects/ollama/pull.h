// Ollama's POST /api/pull: fetches a model of the hub into the directory of models, where it is
// served from then on. Its progress is a stream of lines.
#pragma once

#include "server/server_app.h"

namespace moeflux {

// A pull runs in a thread of its own until it is done, its client leaves, or the app goes.
void add_pull_route(ServerApp& app);

}  // namespace moeflux
