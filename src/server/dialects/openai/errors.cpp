#include "server/dialects/openai/errors.h"

namespace moeflux {
namespace {

Json code_of(const HttpError& error) {
  if (error.type() == "exceed_context_size_error") return "context_length_exceeded";
  switch (error.status()) {
    case 401:
      return "invalid_api_key";
    case 404:
      return error.param() == "model" ? "model_not_found" : "not_found";
    case 429:
      return "rate_limit_exceeded";
    default:
      return nullptr;
  }
}

}  // namespace

Json openai_error_json(const HttpError& error) {
  Json body = Json::object();
  body["message"] = error.what();
  body["type"] = error.type();
  body["param"] = error.param().empty() ? Json(nullptr) : Json(error.param());
  body["code"] = code_of(error);
  for (const auto& [name, value] : error.numbers()) body[name] = value;
  Json result = Json::object();
  result["error"] = std::move(body);
  return result;
}

HttpResponse openai_error(const HttpError& error) {
  return {.status = error.status(), .body = dump_json(openai_error_json(error))};
}

}  // namespace moeflux
