// The members of a JSON request body, read with the manners of all dialects: null counts as absent,
// what is not asked for is ignored, and a value that cannot be used is refused with its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/http/http.h"
#include "server/service/generation.h"

namespace moeflux {

// Throws HttpError 400 unless the body is a JSON object, and 413 or 503 where there is no memory
// for what is made of it.
Json parse_body(const HttpRequest& request);

class RequestFields {
 public:
  // `object` must outlive this. `prefix` comes before the names in errors: "stream_options.".
  explicit RequestFields(const Json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  const Json* find(std::string_view name) const;  // null when absent or null
  std::optional<double> number(std::string_view name) const;
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t min = INT64_MIN,
                                      std::int64_t max = INT64_MAX) const;
  std::optional<bool> boolean(std::string_view name) const;
  std::optional<std::string> string(std::string_view name) const;
  const Json* object(std::string_view name) const;  // null when absent
  const Json* array(std::string_view name) const;

  // Throws HttpError 400 that names the field.
  [[noreturn]] void refuse(std::string_view name, const std::string& why) const;

 private:
  const Json& object_;
  std::string prefix_;
};

// temperature, top_p, top_k, min_p, typical_p, repetition_penalty or repeat_penalty,
// presence_penalty, frequency_penalty, seed, logit_bias.
SamplingChanges read_sampling(const RequestFields& fields);
// A text or a list of them.
std::vector<std::string> read_stop(const RequestFields& fields, std::string_view name = "stop");

// Runs `body` and has errors in the input name the field.
template <class Body>
auto naming(const std::string& param, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.code() != Errc::BadInput) throw;
    throw bad_request(error.what(), param);
  }
}

}  // namespace moeflux
