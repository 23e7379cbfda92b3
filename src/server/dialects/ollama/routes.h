// Ollama's API: /api/chat, /api/generate, /api/tags, /api/show, /api/ps, /api/version and the
// greeting at /. What this server cannot do is answered with 501.
#pragma once

namespace moeflux {

class ServerApp;

void add_ollama_routes(ServerApp& app);

}  // namespace moeflux
