// /v1/messages and /v1/messages/count_tokens.
#pragma once

namespace moeflux {

class ServerApp;
void add_anthropic_routes(ServerApp& app);

}  // namespace moeflux
