// The members of a JSON request body, as all dialects read them: null counts as absent, unknown
// members are ignored, and a value that cannot be used is refused with its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/http/http.h"
#include "server/service/generation.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

// Throws HttpError 400 unless the body is a JSON object, and 413 or 503 where there is no memory
// for it and its way to tokens.
Json parse_body(const HttpRequest& request);

// How long the name of a model in a request may be: it comes back in every line of the answer.
inline constexpr std::size_t kMaxModelName = 256;

class RequestFields {
 public:
  // `object` must outlive this. `prefix` comes before the names in errors: "stream_options.".
  explicit RequestFields(const Json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  const Json* find(std::string_view name) const;  // null when absent or null
  std::optional<double> number(std::string_view name) const {
    return as<double>(find(name, &Json::is_number, "a number"));
  }
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t min = INT64_MIN,
                                      std::int64_t max = INT64_MAX) const;
  std::optional<bool> boolean(std::string_view name) const {
    return as<bool>(find(name, &Json::is_boolean, "true or false"));
  }
  std::optional<std::string> string(std::string_view name) const {
    return as<std::string>(find(name, &Json::is_string, "a string"));
  }
  const Json* object(std::string_view name) const {  // null when absent
    return find(name, &Json::is_object, "an object");
  }
  const Json* array(std::string_view name) const { return find(name, &Json::is_array, "an array"); }
  // The members of an object; nothing when it is absent.
  std::optional<RequestFields> inner(std::string_view name) const;
  // These refuse a member that is absent.
  std::string required_string(std::string_view name) const {
    return present(name, find(name, &Json::is_string, "a string")).get<std::string>();
  }
  const Json& required_object(std::string_view name) const { return present(name, object(name)); }
  const Json& required_array(std::string_view name) const { return present(name, array(name)); }

  const std::string& prefix() const { return prefix_; }
  // Throw HttpError 400 that names the field: "NAME WHY", "NAME is "VALUE", but must be KNOWN".
  [[noreturn]] void refuse(std::string_view name, const std::string& why) const;
  [[noreturn]] void refuse_value(std::string_view name, const std::string& value,
                                 std::string_view known) const;

 private:
  template <class T>
  static std::optional<T> as(const Json* value) {
    return value == nullptr ? std::nullopt : std::optional(value->get<T>());
  }
  const Json* find(std::string_view name, bool (Json::*is_kind)() const, const char* kind) const;
  const Json& present(std::string_view name, const Json* value) const;

  const Json& object_;
  std::string prefix_;
};

// temperature, top_p, top_k, min_p, typical_p, repetition_penalty or repeat_penalty,
// presence_penalty, frequency_penalty, seed, logit_bias.
// With a tokenizer, logit_bias may name texts, whose tokens all get the bias.
SamplingChanges read_sampling(const RequestFields& fields, const Tokenizer* tokenizer = nullptr);
// continue_final_message, and add_generation_prompt, which is its contrary. See
// GenerationRequest::continues.
std::optional<bool> read_continues(const RequestFields& fields);
// A string or a list of strings.
std::vector<std::string> read_stop(const RequestFields& fields, std::string_view name = "stop");

}  // namespace moeflux
