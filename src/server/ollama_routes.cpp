#include "server/ollama_routes.h"

#include <fmt/format.h>

#include "server/ollama_answer.h"
#include "server/ollama_models.h"
#include "server/request_fields.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

// The state of Ollama's API that is spoken here. Clients compare it with what they need.
constexpr const char* kApiVersion = "0.12.6";

void generate(OllamaKind kind, const ServerApp& app, const HttpRequest& http,
              const ExchangePtr& exchange) {
  const auto service = app.service();
  const Json body = parse_body(http);
  const std::int64_t context = service->engine().context_length();
  const OllamaRequest request = kind == OllamaKind::Chat
                                    ? read_ollama_chat(body, context)
                                    : read_ollama_generate(body, context, service->tokenizer());
  const auto answer = std::make_shared<OllamaAnswer>(
      kind, exchange, request.model.empty() ? app.options().model_id : request.model,
      request.stream, service->facts());
  if (request.only_load) return answer->load();
  const auto generation = service->start(
      request.generation, [answer](int, const GenerationEvent& event) { answer->take(event); },
      [&] { answer->begin(); });
  exchange->on_gone([generation] { generation->cancel(); });
}

HttpResponse version(const ServerApp& app, const HttpRequest&) {
  return {.body = dump_json({{"version", kApiVersion}, {"moeflux", app.options().version}})};
}

HttpResponse tags(const ServerApp& app, const HttpRequest&) {
  return {.body = dump_json(ollama_tags(app))};
}

HttpResponse running(const ServerApp& app, const HttpRequest&) {
  return {.body = dump_json(ollama_running(app))};
}

HttpResponse show(const ServerApp& app, const HttpRequest& request) {
  const Json body = parse_body(request);
  const std::string name = read_ollama_model(body);
  if (name.empty()) RequestFields(body).refuse("model", "is missing");
  return {.body = dump_json(ollama_show(app, name))};
}

HttpResponse greet(const ServerApp&, const HttpRequest&) {
  return {.content_type = "text/plain; charset=utf-8", .body = "moeflux is running"};
}

[[noreturn]] HttpResponse refuse(const ServerApp&, const HttpRequest& request) {
  throw HttpError(501, "not_supported_error",
                  fmt::format("{} is not supported by this server, which has one model and "
                              "generates text",
                              request.path));
}

}  // namespace

void add_ollama_routes(ServerApp& app) {
  const auto add = [&](const char* method, const char* path, auto handler, bool needs_key = true) {
    app.router().add({method, path,
                      [&app, handler](const HttpRequest& request, const ExchangePtr& exchange) {
                        exchange->respond(handler(app, request));
                      },
                      ollama_error, needs_key});
  };
  for (const auto& [path, kind] : {std::pair("/api/chat", OllamaKind::Chat),
                                   std::pair("/api/generate", OllamaKind::Generate)}) {
    app.router().add({"POST", path,
                      [&app, kind = kind](const HttpRequest& request, const ExchangePtr& exchange) {
                        generate(kind, app, request, exchange);
                      },
                      ollama_error});
  }
  add("GET", "/", greet, /*needs_key=*/false);
  add("GET", "/api/version", version, /*needs_key=*/false);
  add("GET", "/api/tags", tags);
  add("GET", "/api/ps", running);
  add("POST", "/api/show", show);
  for (const char* path : {"/api/embed", "/api/embeddings", "/api/pull", "/api/push", "/api/create",
                           "/api/copy", "/api/blobs/{digest}"})
    add("POST", path, refuse);
  add("DELETE", "/api/delete", refuse);
}

}  // namespace moeflux
