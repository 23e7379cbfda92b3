// What the keywords of a JSON schema are: their shapes, their spellings in older drafts, and the
// types of values they are about.
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
  SchemaPlace operator/(std::string_view step) const;  // escapes it as JSON pointers do
  std::string text() const;
  [[noreturn]] void bad(std::string_view what) const;
};

// `/` and `~` of a member's name as a JSON pointer writes them.
std::string pointer_step(std::string_view name);

enum class JsonType : std::uint8_t { Object, Array, String, Number, Integer, Boolean, Null };
using JsonTypes = std::set<JsonType>;

std::string_view type_name(JsonType type);

// Where a keyword holds schemas.
enum class SchemaHolder : std::uint8_t {
  None,
  One,         // a schema
  List,        // a list of schemas
  Map,         // an object of schemas
  OneOrList,   // `items` until draft 2019-09
  MapOrLists,  // `dependencies`: schemas or lists of names
};
SchemaHolder schemas_in(std::string_view keyword);

// Throws BadInput for a value the keyword cannot have. Keywords nobody knows may have any.
void check_keyword(std::string_view keyword, const Json& value, const SchemaPlace& place);

// One that says something about the values; annotations and what is unknown do not.
bool is_assertion(std::string_view keyword);

// The schema (an object) with draft 2020-12's spellings of what older drafts and OpenAPI write:
// lists in `items`, `dependencies`, boolean exclusiveMinimum, `nullable`, `const`. Its own members
// only.
Json modern_schema(const Json& schema);

// What `type` says; without it the types that the keywords are about, and all of them when nothing
// is said.
JsonTypes types_of(const Json& schema);
JsonTypes all_types();                      // Number is for Integer too
JsonType type_of_value(const Json& value);  // whole numbers are Integer
bool has_type(const Json& value, const JsonTypes& types);

// As the standard compares: 1 and 1.0 are one number, the order of members says nothing.
bool equal_values(const Json& a, const Json& b);

// A schema without a keyword.
Json without(Json schema, std::string_view keyword);

// For what both schemas allow.
Json all_of(const Json& a, const Json& b);

}  // namespace moeflux
