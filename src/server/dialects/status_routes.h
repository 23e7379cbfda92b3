// What can be asked about the server and its models: /health, /props, /slots, /metrics, /tokenize,
// /detokenize, /apply-template.
#pragma once

namespace moeflux {

class ServerApp;

void add_status_routes(ServerApp& app);

}  // namespace moeflux
