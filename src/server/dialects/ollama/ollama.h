// Ollama's /api/chat and /api/generate: bodies as requests to the model, and answers as a stream of
// lines, each a JSON object, or one such object at the end. And what its clients ask about models:
// /api/tags, /api/show, /api/ps.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/json.h"
#include "server/dialects/answer.h"
#include "server/service/generation.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

struct OllamaRequest {
  GenerationRequest generation;
  std::string model;       // as the client called it; the answer calls it the same
  bool stream = true;      // unless told otherwise
  bool only_load = false;  // there is nothing to answer: the client wants the model in memory
};

// Unknown fields and options are ignored; unknown values throw HttpError 400 with their name.
// `context` is what the server holds: an options.num_ctx beyond it is refused, because the client
// would count on room that is not there.
OllamaRequest read_ollama_chat(const Json& body, std::int64_t context);
OllamaRequest read_ollama_generate(const Json& body, std::int64_t context,
                                   const Tokenizer& tokenizer);

// The field "model", or "name" as older clients call it; "" when there is neither.
std::string read_ollama_model(const Json& body);

enum class OllamaKind { Chat, Generate };

std::unique_ptr<DialectAnswer> make_ollama_answer(OllamaKind kind, ExchangePtr exchange,
                                                  AnswerModel model, bool stream);

// To a request without text, which is only about the model: "load" or "unload".
HttpResponse ollama_load_response(OllamaKind kind, const std::string& model, const char* reason);

// "2026-01-31T12:00:00.123456789Z"
std::string ollama_time(std::chrono::system_clock::time_point time);

// ---- models

Json ollama_tags(const ServerApp& app);     // all
Json ollama_running(const ServerApp& app);  // those in memory
// `name` as clients write it, with or without ":latest". Throws HttpError 404 for another.
Json ollama_show(const ServerApp& app, const std::string& name);

}  // namespace moeflux
