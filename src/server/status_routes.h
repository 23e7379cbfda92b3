// What can be asked about the server and its model: /health, /v1/models, /props, /slots, /metrics,
// /tokenize, /detokenize, /apply-template.
#pragma once

namespace moeflux {

class ServerApp;

void add_status_routes(ServerApp& app);

}  // namespace moeflux
