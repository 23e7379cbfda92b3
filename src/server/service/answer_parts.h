// What the answers of all dialects need, whatever their form.
#pragma once

#include <optional>
#include <string>

#include "server/http/http.h"
#include "server/service/generation.h"

namespace moeflux {

// "abc123..." of 24 characters, new every time.
std::string random_id();

// Why an answer has no good end; nothing where it has one.
std::optional<HttpError> answer_error(const GenerationEnded& ended);

}  // namespace moeflux
