#include "base/json.h"

#include <cmath>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace moeflux {
namespace {

constexpr int kMaxDepth = 256;
// Looking a key up is linear in an ordered object, so building one is quadratic.
constexpr std::size_t kMaxKeys = 1 << 14;

// Refuses, while parsing, what would make the parsed document costly or ambiguous.
class ParseGuard {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxDepth) fail(Errc::BadInput, "nested deeper than {} levels", kMaxDepth);
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_.pop_back();
    if (event == Json::parse_event_t::key) {
      auto& keys = open_.back();
      if (keys.size() == kMaxKeys)
        fail(Errc::BadInput, "an object has more than {} keys", kMaxKeys);
      if (!keys.insert(parsed.get<std::string>()).second) {
        fail(Errc::BadInput, "the key \"{}\" appears twice in one object",
             parsed.get<std::string>());
      }
    }
    return true;
  }

 private:
  std::vector<std::unordered_set<std::string>>
      open_;  // keys of the objects around the current place
};

std::int64_t as_integer(const Json& value, std::string_view key, const std::string& origin,
                        std::int64_t min, std::int64_t max) {
  const bool too_large = value.is_number_unsigned() &&
                         value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  // Some exporters write 8.0 for 8; anything with a fraction is an error.
  const bool whole = value.is_number_float() &&
                     std::trunc(value.get<double>()) == value.get<double>() &&
                     std::abs(value.get<double>()) < 9e15;
  if (too_large || (!value.is_number_integer() && !whole)) {
    fail(Errc::BadInput, "{}: \"{}\" must be an integer, but is {}", origin, key,
         dump_json(value).substr(0, 80));
  }
  const auto integer =
      whole ? static_cast<std::int64_t>(value.get<double>()) : value.get<std::int64_t>();
  if (integer < min || integer > max) {
    fail(Errc::BadInput, "{}: \"{}\" is {}, outside of {} to {}", origin, key, integer, min, max);
  }
  return integer;
}

double as_number(const Json& value, std::string_view key, const std::string& origin) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    fail(Errc::BadInput, "{}: \"{}\" must be a finite number, but is {}", origin, key,
         dump_json(value).substr(0, 80));
  }
  return value.get<double>();
}

}  // namespace

Json parse_json(std::string_view text, std::string_view origin) {
  try {
    return Json::parse(
        text.begin(), text.end(),
        [guard = ParseGuard()](int depth, Json::parse_event_t event, Json& parsed) mutable {
          return guard(depth, event, parsed);
        });
  } catch (const Json::exception& error) {
    fail(Errc::BadInput, "{}: not valid JSON: {}", origin, error.what());
  } catch (const Error& error) {
    fail(error.code(), "{}: not valid JSON: {}", origin, error.what());
  }
}

Json read_json_file(const std::string& path, std::uint64_t max_bytes) {
  return parse_json(read_text_file(path, max_bytes), path);
}

std::string dump_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

JsonFields::JsonFields(const Json& object, std::string origin)
    : object_(object), origin_(std::move(origin)) {
  if (!object.is_object()) fail(Errc::BadInput, "{}: must be a JSON object", origin_);
}

const Json* JsonFields::find(std::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool JsonFields::has(std::string_view key) const {
  return find(key) != nullptr;
}

const Json& JsonFields::required(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) fail(Errc::BadInput, "{}: \"{}\" is missing", origin_, key);
  return *value;
}

std::int64_t JsonFields::integer(std::string_view key, std::int64_t min, std::int64_t max) const {
  return as_integer(required(key), key, origin_, min, max);
}

std::int64_t JsonFields::integer_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                                    std::int64_t max) const {
  const Json* value = find(key);
  return value == nullptr ? fallback : as_integer(*value, key, origin_, min, max);
}

double JsonFields::number(std::string_view key) const {
  return as_number(required(key), key, origin_);
}

double JsonFields::number_or(std::string_view key, double fallback) const {
  const Json* value = find(key);
  return value == nullptr ? fallback : as_number(*value, key, origin_);
}

bool JsonFields::boolean_or(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(Errc::BadInput, "{}: \"{}\" must be true or false", origin_, key);
  return value->get<bool>();
}

std::string JsonFields::string(std::string_view key) const {
  const Json& value = required(key);
  if (!value.is_string()) fail(Errc::BadInput, "{}: \"{}\" must be a string", origin_, key);
  return value.get<std::string>();
}

std::string JsonFields::string_or(std::string_view key, std::string fallback) const {
  return has(key) ? string(key) : fallback;
}

}  // namespace moeflux
