#include "server/dialects/anthropic/errors.h"

#include <fmt/format.h>

#include "server/service/answer_parts.h"

namespace moeflux {
namespace {

struct ErrorKind {
  int status;
  std::string_view type;
};

// Clients try again after 5xx and 529, which must not happen with what can never succeed.
ErrorKind kind_of(const HttpError& error) {
  switch (error.status()) {
    case 401:
      return {401, "authentication_error"};
    case 403:
      return {403, "permission_error"};
    case 404:
      return {404, "not_found_error"};
    case 413:
      return {413, "request_too_large"};
    case 429:
      return {429, "rate_limit_error"};
    case 501:
      return {400, "invalid_request_error"};
    case 503:
      return {529, "overloaded_error"};
    default:
      break;
  }
  if (error.status() < 500) return {error.status(), "invalid_request_error"};
  return {error.status(), "api_error"};
}

// Agents look for these words and numbers to shorten their history.
std::string message_of(const HttpError& error) {
  const auto& numbers = error.numbers();
  if (error.type() != "exceed_context_size_error" || numbers.size() != 2) return error.what();
  return fmt::format(
      "prompt is too long: {} tokens > {} maximum; shorten it, or start the server with a larger "
      "--ctx-size",
      numbers[0].second, numbers[1].second);
}

}  // namespace

std::string new_request_id() {
  return "req_" + random_id();
}

Json anthropic_error_json(const HttpError& error, const std::string& request_id) {
  return {{"type", "error"},
          {"error", {{"type", kind_of(error).type}, {"message", message_of(error)}}},
          {"request_id", request_id}};
}

HttpResponse anthropic_error(const HttpError& error) {
  const std::string id = new_request_id();
  return {.status = kind_of(error).status,
          .body = dump_json(anthropic_error_json(error, id)),
          .headers = {{"request-id", id}}};
}

}  // namespace moeflux
