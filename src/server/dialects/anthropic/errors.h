// Errors as Anthropic's API words them. Every one has an id of its own, in the body and in the
// header request-id.
#pragma once

#include <string>

#include "base/json.h"
#include "server/http/http.h"

namespace moeflux {

// {"type": "error", "error": {"type", "message"}, "request_id"}
Json anthropic_error_json(const HttpError& error, const std::string& request_id);
HttpResponse anthropic_error(const HttpError& error);

std::string new_request_id();  // "req_..."

}  // namespace moeflux
