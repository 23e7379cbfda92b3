// Errors in the words of each dialect.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "server/http/exchange.h"

namespace moeflux {

// OpenAI: {"error": {"message", "type", "param", "code", ...}}
Json openai_error_json(const HttpError& error);
HttpResponse openai_error(const HttpError& error);

// Anthropic: {"type": "error", "error": {"type", "message"}, "request_id"}. Every error has an id
// of its own, in the body and in the header request-id.
Json anthropic_error_json(const HttpError& error, const std::string& request_id);
HttpResponse anthropic_error(const HttpError& error);

// Ollama: {"error": "..."}
Json ollama_error_json(const HttpError& error);
HttpResponse ollama_error(const HttpError& error);

// For errors that occur before a route is found. Anthropic's for /v1/messages and below, Ollama's
// for /api/..., else OpenAI's.
ErrorForm error_form_of(std::string_view path);
// By the error's own path.
HttpResponse error_by_path(const HttpError& error);

}  // namespace moeflux
