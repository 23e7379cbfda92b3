// JSON as the project uses it: objects keep their key order (chat templates print them), parse
// errors and type errors become Error with the file and the field in the message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace moeflux {

using Json = nlohmann::ordered_json;

// Parses UTF-8 JSON. `origin` names the text in the error ("config.json"). Refused: nesting deeper
// than 256, a key twice in one object, more than 16384 keys in one object.
Json parse_json(std::string_view text, std::string_view origin);

// Reads and parses a whole file, refusing one of more than `max_bytes`.
Json read_json_file(const std::string& path, std::uint64_t max_bytes = 256u << 20);

// Serializes; invalid UTF-8 becomes U+FFFD instead of an exception. indent < 0 is one line.
std::string dump_json(const Json& value, int indent = -1);

// Typed, checked access to the members of one JSON object that came from outside.
class JsonFields {
 public:
  // `object` must outlive this. `origin` is prefixed to every message: "models/x/config.json:
  // text_config".
  JsonFields(const Json& object, std::string origin);

  bool has(std::string_view key) const;  // present and not null
  const Json* find(std::string_view key) const;

  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t min,
                          std::int64_t max) const;
  double number(std::string_view key) const;  // finite
  double number_or(std::string_view key, double fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string fallback) const;

  const std::string& origin() const { return origin_; }
  const Json& object() const { return object_; }

 private:
  const Json& required(std::string_view key) const;

  const Json& object_;
  std::string origin_;
};

}  // namespace moeflux
