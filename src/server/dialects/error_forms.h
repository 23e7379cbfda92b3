// Errors that come before a route is known, or without one: their path says whose words to use.
#pragma once

#include <string_view>

#include "server/http/router.h"

namespace moeflux {

// Anthropic's for /v1/messages and below, Ollama's for /api/..., else OpenAI's.
ErrorForm error_form_of(std::string_view path);

// By the error's own path.
HttpResponse error_by_path(const HttpError& error);

}  // namespace moeflux
