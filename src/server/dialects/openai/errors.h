// Errors as the OpenAI API writes them.
#pragma once

#include "base/json.h"
#include "server/http/http.h"

namespace moeflux {

// {"error": {"message", "type", "param", "code", ...}}
Json openai_error_json(const HttpError& error);
HttpResponse openai_error(const HttpError& error);

}  // namespace moeflux
