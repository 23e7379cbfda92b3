#include "server/dialects/ollama/routes.h"

#include <fmt/format.h>

#include "server/dialects/ollama/answer.h"
#include "server/dialects/ollama/models.h"
#include "server/dialects/request_fields.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

// The state of Ollama's API that is spoken here. Clients compare it with what they need.
constexpr const char* kApiVersion = "0.12.6";

void generate(OllamaKind kind, const ModelRequest& asked) {
  const GenerationService& service = *asked.model.service;
  const std::int64_t context = service.engine().context_length();
  service.prompt_maker().check_texts(asked.body);
  const OllamaRequest request =
      kind == OllamaKind::Chat ? read_ollama_chat(asked.body, context)
                               : read_ollama_generate(asked.body, context, service.tokenizer());
  const auto answer = std::make_shared<OllamaAnswer>(
      kind, asked.exchange, request.model.empty() ? asked.model.name : request.model,
      request.stream, service.facts());
  if (request.only_load) return answer->load();
  start_answer(
      asked, request.generation,
      [answer](int, const GenerationEvent& event) { answer->take(event); },
      [&] { answer->begin(); });
}

// Nothing to answer, and not to be kept: the client wants the model out of memory.
bool unload(OllamaKind kind, ModelPool& pool, const CatalogEntry& entry, const Json& body,
            const ExchangePtr& exchange) {
  const RequestFields fields(body);
  const bool is_chat = kind == OllamaKind::Chat;
  const Json* asked = is_chat ? fields.array("messages") : nullptr;
  const bool has_text =
      is_chat ? asked != nullptr && !asked->empty() : !fields.string("prompt").value_or("").empty();
  const Json* keep_alive = fields.find("keep_alive");
  if (has_text || keep_alive == nullptr) return false;
  if (naming("keep_alive", [&] { return read_keep_alive(*keep_alive); }) !=
      KeepAlive(std::chrono::milliseconds(0)))
    return false;
  pool.unload(entry);
  OllamaAnswer(kind, exchange, read_ollama_model(body), /*stream=*/false, {}).load("unload");
  return true;
}

HttpResponse version(const ServerApp& app, const HttpRequest&) {
  return {.body = dump_json({{"version", kApiVersion}, {"moeflux", app.options().version}})};
}

HttpResponse tags(const ServerApp& app, const HttpRequest&) {
  return {.body = dump_json(ollama_tags(app))};
}

HttpResponse running_models(const ServerApp& app, const HttpRequest&) {
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
  throw HttpError(
      501, "not_supported_error",
      fmt::format("{} is not supported by this server, which only generates text", request.path));
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
    app.add_model_route(
        "POST", path,
        {.handler = [kind = kind](const ModelRequest& request) { generate(kind, request); },
         .error_form = ollama_error,
         .is_ollama = true,
         .without_model =
             [kind = kind](ModelPool& pool, const CatalogEntry& entry, const Json& body,
                           const ExchangePtr& exchange) {
               return unload(kind, pool, entry, body, exchange);
             }});
  }
  add("GET", "/", greet, /*needs_key=*/false);
  add("GET", "/api/version", version, /*needs_key=*/false);
  add("GET", "/api/tags", tags);
  add("GET", "/api/ps", running_models);
  add("POST", "/api/show", show);
  for (const char* path : {"/api/embed", "/api/embeddings", "/api/pull", "/api/push", "/api/create",
                           "/api/copy", "/api/blobs/{digest}"})
    add("POST", path, refuse);
  add("DELETE", "/api/delete", refuse);
}

}  // namespace moeflux
