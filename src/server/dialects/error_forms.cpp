#include "server/dialects/error_forms.h"

#include "server/dialects/anthropic/errors.h"
#include "server/dialects/ollama/answer.h"
#include "server/dialects/openai/errors.h"

namespace moeflux {

ErrorForm error_form_of(std::string_view path) {
  constexpr std::string_view kMessages = "/v1/messages";
  if (path == kMessages || (path.starts_with(kMessages) && path[kMessages.size()] == '/'))
    return anthropic_error;
  if (path.starts_with("/api/")) return ollama_error;
  return openai_error;
}

HttpResponse error_by_path(const HttpError& error) {
  return error_form_of(error.path())(error);
}

}  // namespace moeflux
