// What the keywords of a JSON schema are to us, references between schemas, and the conjunction of
// two schemas as one (for allOf, and for what stands beside $ref and anyOf).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moeflux {

// A schema and how to name it in messages: "schema: /properties/a".
struct SchemaPlace {
  std::string origin, path;
  SchemaPlace operator/(std::string_view step) const;
  std::string text() const;
  [[noreturn]] void bad(std::string_view what) const;
  [[noreturn]] void unsupported(std::string_view what) const;
};

enum class JsonType : std::uint8_t { Object, Array, String, Number, Integer, Boolean, Null };
using JsonTypes = std::set<JsonType>;

bool is_annotation(std::string_view keyword);  // says nothing about what is valid

// Throws Unsupported for a keyword that would be ignored otherwise, BadInput for a schema that is
// neither an object nor a boolean.
void check_keywords(const Json& schema, const SchemaPlace& place);

// What `type` and `nullable` say; the types that the keywords are about when there is no `type`;
// all of them when nothing is said.
JsonTypes types_of(const Json& schema, const SchemaPlace& place);
JsonType type_of_value(const Json& value);  // whole numbers are Integer
bool has_type(const Json& value, const JsonTypes& types);

// "#", "#/$defs/x", "#/properties/a/items": inside of the document.
const Json& resolve_reference(const Json& root, const Json& reference, const SchemaPlace& place);

// A schema for the values both allow. May put "allOf" inside of properties and items.
Json both_schemas(const Json& a, const Json& b, const SchemaPlace& place);

// No value can match both. False when that cannot be told.
bool are_disjoint(const Json& a, const Json& b, const SchemaPlace& place);

// A schema without a keyword.
Json without(Json schema, std::string_view keyword);

}  // namespace moeflux
