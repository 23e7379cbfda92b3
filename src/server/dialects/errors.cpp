#include "server/dialects/errors.h"

#include <fmt/format.h>

#include "server/dialects/answer.h"

namespace moeflux {
namespace {

Json openai_code(const HttpError& error) {
  if (!error.code().empty()) return error.code();
  if (error.type() == "exceed_context_size_error") return "context_length_exceeded";
  if (error.status() == 401) return "invalid_api_key";
  if (error.status() == 404) return error.param() == "model" ? "model_not_found" : "not_found";
  if (error.status() == 429) return "rate_limit_exceeded";
  return nullptr;
}

struct AnthropicKind {
  int of;  // our status
  int status;
  std::string_view type;
};

// Clients try again after 5xx and 529; requests that can never succeed must have other statuses.
constexpr AnthropicKind kAnthropicKinds[] = {
    {401, 401, "authentication_error"}, {403, 403, "permission_error"},
    {404, 404, "not_found_error"},      {413, 413, "request_too_large"},
    {429, 429, "rate_limit_error"},     {501, 400, "invalid_request_error"},
    {503, 529, "overloaded_error"},
};

AnthropicKind anthropic_kind(const HttpError& error) {
  const int status = error.status();
  for (const AnthropicKind& kind : kAnthropicKinds) {
    if (kind.of == status) return kind;
  }
  return {status, status, status < 500 ? "invalid_request_error" : "api_error"};
}

// Agents look for these words and numbers to shorten their history.
std::string anthropic_message(const HttpError& error) {
  const auto& numbers = error.numbers();
  if (error.type() != "exceed_context_size_error" || numbers.size() != 2) return error.what();
  return fmt::format(
      "prompt is too long: {} tokens > {} maximum; shorten it, or start the server with a larger "
      "--ctx-size",
      numbers[0].second, numbers[1].second);
}

}  // namespace

Json openai_error_json(const HttpError& error) {
  Json body = {{"message", error.what()},
               {"type", error.type()},
               {"param", error.param().empty() ? Json(nullptr) : Json(error.param())},
               {"code", openai_code(error)}};
  for (const auto& [name, value] : error.numbers()) body[name] = value;
  return {{"error", std::move(body)}};
}

HttpResponse openai_error(const HttpError& error) {
  return {.status = error.status(), .body = dump_json(openai_error_json(error))};
}

Json anthropic_error_json(const HttpError& error, const std::string& request_id) {
  Json body = {{"type", anthropic_kind(error).type}, {"message", anthropic_message(error)}};
  if (!error.code().empty()) {
    body["details"] = {{"error_code", error.code()}, {"unsupported", Json::array({error.param()})}};
  }
  return {{"type", "error"}, {"error", std::move(body)}, {"request_id", request_id}};
}

HttpResponse anthropic_error(const HttpError& error) {
  const std::string id = "req_" + random_id();
  return {.status = anthropic_kind(error).status,
          .body = dump_json(anthropic_error_json(error, id)),
          .headers = {{"request-id", id}}};
}

Json ollama_error_json(const HttpError& error) {
  return {{"error", error.what()}};
}

HttpResponse ollama_error(const HttpError& error) {
  return {.status = error.status(), .body = dump_json(ollama_error_json(error))};
}

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
