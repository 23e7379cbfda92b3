// JSON schemas (drafts 4 to 2020-12 and OpenAPI's) as grammars.
//
// Every text of the grammar is a JSON document that the schema accepts, but for the keywords that
// its notes name: what no grammar of ours keeps is left out there, and is checked when the document
// is complete (schema_check.h). The reverse need not hold: of the many texts of one document the
// grammar has few (properties in the order of the schema, bounded blanks), and properties that the
// schema does not name appear only where it asks for them. docs/GRAMMAR.md lists what is kept.
#pragma once

#include <string>

#include "base/json.h"
#include "text/grammar/grammar.h"
#include "text/grammar/json_pieces.h"
#include "text/grammar/schema_document.h"

namespace moeflux {

struct JsonSchemaOptions {
  std::string origin = "schema";  // names the schema in messages
  JsonBlanks blanks = JsonBlanks::Some;
  // Up to two newlines before the document: what models write after they have thought.
  bool leading_newlines = false;
  // As the standard says and nobody means it: where nothing forbids them, properties and items that
  // the schema does not speak of, and types that its keywords are not about.
  bool as_standard = false;
};

// The values of the schema, as an expression of a larger grammar, which also gets the notes. Throws
// BadInput for what is no schema, LimitExceeded for what is too large.
ExprId add_json_schema(Grammar& grammar, const Json& schema, const JsonSchemaOptions& options = {});

// A grammar of such values alone.
Grammar json_schema_grammar(const Json& schema, const JsonSchemaOptions& options = {});

// JSON mode: any object.
Grammar json_object_grammar(const JsonSchemaOptions& options = {});

}  // namespace moeflux
