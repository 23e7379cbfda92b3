// Which models there are: GET /v1/models and /v1/models/{model}, also without /v1.
#pragma once

namespace moeflux {

class ServerApp;

void add_model_list_routes(ServerApp& app);

}  // namespace moeflux
