// All paths that the server answers.
#pragma once

namespace moeflux {

class ServerApp;

// Generating text in the dialects of OpenAI (/v1/chat/completions, /v1/completions, /v1/responses,
// also without /v1), Anthropic (/v1/messages) and Ollama (/api/..., and the greeting at /). What
// this server cannot do is answered with 501.
void add_dialect_routes(ServerApp& app);

// Questions about the server and its models: /health, /props, /slots, /metrics, /tokenize,
// /detokenize, /apply-template, /v1/models and /v1/models/{model}, also without /v1.
void add_status_routes(ServerApp& app);

}  // namespace moeflux
