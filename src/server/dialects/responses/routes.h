// POST /v1/responses, also without /v1. Nothing is kept: what asks for a response again gets 404.
#pragma once

namespace moeflux {

class ServerApp;

void add_responses_routes(ServerApp& app);

}  // namespace moeflux
