// What Ollama's clients ask about models: /api/tags, /api/show, /api/ps.
#pragma once

#include "base/json.h"

namespace moeflux {

class ServerApp;

Json ollama_tags(const ServerApp& app);
Json ollama_running(const ServerApp& app);  // those in memory
// `name` as clients write it, with or without ":latest". Throws HttpError 404 for another.
Json ollama_show(const ServerApp& app, const std::string& name);

}  // namespace moeflux
