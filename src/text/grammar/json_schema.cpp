#include "text/grammar/json_schema.h"

#include "base/error.h"
#include "text/grammar/schema_compiler.h"

namespace moeflux {
namespace {

Grammar as_document(Grammar grammar, ExprId value, const JsonSchemaOptions& options) {
  if (options.leading_newlines) {
    value = grammar.sequence({grammar.repeat(grammar.literal("\n"), 0, 2), value});
  }
  grammar.set_root(grammar.declare(options.origin, value));
  return grammar;
}

}  // namespace

ExprId add_json_schema(Grammar& grammar, const Json& schema, const JsonSchemaOptions& options) {
  if (const std::size_t size = dump_json(schema).size(); size > kMaxSchemaBytes) {
    fail(Errc::LimitExceeded, "{}: {} bytes, more than the limit of {}", options.origin, size,
         kMaxSchemaBytes);
  }
  return SchemaCompiler(grammar, schema, options).run();
}

Grammar json_schema_grammar(const Json& schema, const JsonSchemaOptions& options) {
  Grammar grammar;
  const ExprId value = add_json_schema(grammar, schema, options);
  return as_document(std::move(grammar), value, options);
}

Grammar json_object_grammar(const JsonSchemaOptions& options) {
  Grammar grammar;
  const ExprId value = JsonPieces(grammar, options.blanks).any_object();
  return as_document(std::move(grammar), value, options);
}

}  // namespace moeflux
