// POST /v1/chat/completions and /v1/completions, also without /v1.
#pragma once

namespace moeflux {

class ServerApp;

void add_openai_routes(ServerApp& app);

}  // namespace moeflux
