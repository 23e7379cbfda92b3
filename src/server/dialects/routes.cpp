// Generating text, in the words of every dialect.
#include <fmt/format.h>

#include "server/dialects/anthropic/anthropic.h"
#include "server/dialects/embeddings/embeddings.h"
#include "server/dialects/errors.h"
#include "server/dialects/llama/llama.h"
#include "server/dialects/ollama/ollama.h"
#include "server/dialects/ollama/pull.h"
#include "server/dialects/openai/openai.h"
#include "server/dialects/request_fields.h"
#include "server/dialects/responses/responses.h"

namespace moeflux {
namespace {

// ---- OpenAI

void answer_chat(const ServerApp& app, const ModelRequest& asked) {
  const OpenAiRequest request = read_chat_request(asked.body);
  start_answer(asked, request.generation,
               make_chat_answer(asked.exchange, model_of(asked), app.options().version, request));
}

void answer_completion(const ServerApp& app, const ModelRequest& asked) {
  asked.model.service->prompt_maker().check_texts(asked.body);
  const OpenAiRequest request =
      read_completion_request(asked.body, asked.model.service->tokenizer());
  start_answer(asked, request.generation,
               make_text_answer(asked.exchange, model_of(asked), app.options().version, request));
}

// How many tokens a chat would have, longer than the context or not: that is what clients want to
// know.
void count_chat_tokens(const ModelRequest& asked) {
  const GenerationService& service = *asked.model.service;
  const OpenAiRequest request = read_chat_request(asked.body);
  const std::size_t n_tokens =
      service.tokenizer().encode(service.render(request.generation)).size();
  asked.exchange->respond({.body = dump_json({{"input_tokens", n_tokens}})});
}

void add_openai_routes(ServerApp& app) {
  const auto add = [&](const char* path, auto handler) {
    app.add_model_route(
        "POST", path,
        {[&app, handler](const ModelRequest& request) { handler(app, request); }, openai_error});
  };
  for (const char* path : {"/v1/chat/completions", "/chat/completions"}) add(path, answer_chat);
  for (const char* path : {"/v1/completions", "/completions"}) add(path, answer_completion);
  for (const char* path : {"/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"})
    app.add_model_route("POST", path, {count_chat_tokens, openai_error});
  add_responses_routes(app);
}

// ---- llama-server

using LlamaReader = LlamaRequest (*)(const Json&, const Tokenizer&, const SamplingParams&);

void answer_llama(LlamaReader read, const ModelRequest& asked) {
  const GenerationService& service = *asked.model.service;
  for (const char* field : {"prompt", "input_prefix", "input_suffix"})
    service.prompt_maker().check_texts(asked.body, field);
  LlamaRequest request = read(asked.body, service.tokenizer(), service.default_sampling());
  const GenerationRequest generation = request.generation;
  start_answer(asked, generation,
               make_llama_answer(asked.exchange, model_of(asked), std::move(request)));
}

void add_llama_routes(ServerApp& app) {
  for (const auto& [path, read] :
       {std::pair<const char*, LlamaReader>("/completion", read_llama_request),
        std::pair<const char*, LlamaReader>("/infill", read_infill_request)}) {
    app.add_model_route(
        "POST", path,
        {[read = read](const ModelRequest& asked) { answer_llama(read, asked); }, openai_error});
  }
}

// ---- Anthropic

void answer_message(const ModelRequest& asked) {
  const AnthropicRequest request = read_anthropic_request(asked.body);
  start_answer(asked, request.generation,
               make_anthropic_answer(asked.exchange, model_of(asked), request));
}

// Counts also a prompt that is longer than the context: that is what clients want to know.
void count_tokens(const ModelRequest& asked) {
  const GenerationService& service = *asked.model.service;
  const GenerationRequest request = read_anthropic_prompt(asked.body);
  const std::size_t n_tokens = service.tokenizer().encode(service.render(request)).size();
  asked.exchange->respond({.body = dump_json({{"input_tokens", n_tokens}}),
                           .headers = {{"request-id", "req_" + random_id()}}});
}

void add_anthropic_routes(ServerApp& app) {
  app.add_model_route("POST", "/v1/messages", {answer_message, anthropic_error});
  app.add_model_route("POST", "/v1/messages/count_tokens", {count_tokens, anthropic_error});
}

// ---- Ollama

// The version of Ollama's API that is spoken here. Clients compare it with what they need.
constexpr const char* kOllamaVersion = "0.12.6";

void answer_ollama(OllamaKind kind, const ModelRequest& asked) {
  const GenerationService& service = *asked.model.service;
  const std::int64_t context = service.engine().context_length();
  service.prompt_maker().check_texts(asked.body);
  const OllamaRequest request =
      kind == OllamaKind::Chat ? read_ollama_chat(asked.body, context)
                               : read_ollama_generate(asked.body, context, service.tokenizer());
  AnswerModel model = model_of(asked);
  if (!request.model.empty()) model.name = request.model;
  if (request.only_load)
    return asked.exchange->respond(ollama_load_response(kind, model.name, "load"));
  start_answer(asked, request.generation,
               make_ollama_answer(kind, asked.exchange, std::move(model), request.stream));
}

// A request without text and with keep_alive 0: the client wants the model out of memory.
bool ollama_unload(OllamaKind kind, ModelPool& pool, const CatalogEntry& entry, const Json& body,
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
  exchange->respond(ollama_load_response(kind, read_ollama_model(body), "unload"));
  return true;
}

HttpResponse ollama_version(const ServerApp& app, const HttpRequest&) {
  return {.body = dump_json({{"version", kOllamaVersion}, {"moeflux", app.options().version}})};
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

[[noreturn]] HttpResponse not_supported(const ServerApp&, const HttpRequest& request) {
  throw HttpError(
      501, "not_supported_error",
      fmt::format("{} is not supported by this server, which only generates text", request.path));
}

void add_ollama_routes(ServerApp& app) {
  for (const auto& [path, kind] : {std::pair("/api/chat", OllamaKind::Chat),
                                   std::pair("/api/generate", OllamaKind::Generate)}) {
    app.add_model_route(
        "POST", path,
        {.handler = [kind = kind](const ModelRequest& request) { answer_ollama(kind, request); },
         .error_form = ollama_error,
         .is_ollama = true,
         .without_model =
             [kind = kind](ModelPool& pool, const CatalogEntry& entry, const Json& body,
                           const ExchangePtr& exchange) {
               return ollama_unload(kind, pool, entry, body, exchange);
             }});
  }
  app.add_route("GET", "/api/version", ollama_version, ollama_error, /*needs_key=*/false);
  app.add_route("GET", "/api/tags", tags, ollama_error);
  app.add_route("GET", "/api/ps", running_models, ollama_error);
  app.add_route("POST", "/api/show", show, ollama_error);
  for (const char* path : {"/api/push", "/api/create", "/api/copy", "/api/blobs/{digest}"})
    app.add_route("POST", path, not_supported, ollama_error);
  add_pull_route(app);
  app.add_route("DELETE", "/api/delete", not_supported, ollama_error);
}

}  // namespace

void add_dialect_routes(ServerApp& app) {
  add_openai_routes(app);
  add_llama_routes(app);
  add_anthropic_routes(app);
  add_ollama_routes(app);
  add_embedding_routes(app);
}

}  // namespace moeflux
