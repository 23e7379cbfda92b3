// JSON schemas (the part of draft 2020-12 that constrained output uses) as grammars.
//
// Every text of the grammar is a JSON document that the schema accepts. The reverse need not hold:
// of the many texts of one document the grammar has few (properties in the order of the schema,
// bounded blanks), and properties that the schema does not name appear only where
// additionalProperties asks for them. A keyword that the grammar could not keep is an error that
// names its path, never ignored; docs/GRAMMAR.md lists what is supported.
#pragma once

#include <string>

#include "base/json.h"
#include "text/grammar/grammar.h"
#include "text/grammar/json_pieces.h"

namespace moeflux {

struct JsonSchemaOptions {
  std::string origin = "schema";  // names the schema in messages
  JsonBlanks blanks = JsonBlanks::Some;
  // Up to two newlines before the document: what models write after they have thought.
  bool leading_newlines = false;
};

inline constexpr std::size_t kMaxSchemaBytes = 256u << 10;

// The values of the schema, as an expression of a larger grammar. Throws BadInput, Unsupported or
// LimitExceeded.
ExprId add_json_schema(Grammar& grammar, const Json& schema, const JsonSchemaOptions& options = {});

// A grammar of such values alone.
Grammar json_schema_grammar(const Json& schema, const JsonSchemaOptions& options = {});

// JSON mode: any object.
Grammar json_object_grammar(const JsonSchemaOptions& options = {});

}  // namespace moeflux
