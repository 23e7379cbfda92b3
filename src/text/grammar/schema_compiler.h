// From one JSON schema to expressions of a grammar: the work behind json_schema.h.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/json_schema.h"
#include "text/grammar/schema_keywords.h"

namespace moeflux {

class SchemaCompiler {
 public:
  SchemaCompiler(Grammar& grammar, const Json& root, const JsonSchemaOptions& options);

  ExprId run();

 private:
  struct Property {
    std::string name;
    ExprId value;
    bool required;
  };
  struct Counts {
    std::uint32_t min, max;
  };

  // Each different schema becomes one rule: so recursion ends, and what is used twice is shared.
  ExprId visit(const Json& schema, const SchemaPlace& place);
  ExprId body(const Json& schema, const SchemaPlace& place);
  ExprId reference(const Json& schema, const SchemaPlace& place);
  ExprId conjunction(const Json& schema, const SchemaPlace& place);
  ExprId alternatives(const Json& schema, const std::string& keyword, const SchemaPlace& place);
  ExprId listed(const Json& schema, const SchemaPlace& place);
  ExprId of_type(JsonType type, const Json& schema, const SchemaPlace& place);

  ExprId string(const Json& schema, const SchemaPlace& place);
  ExprId number(bool integer, const Json& schema, const SchemaPlace& place);
  ExprId array(const Json& schema, const SchemaPlace& place);
  ExprId items_after(const std::vector<ExprId>& fixed, std::size_t at, std::optional<ExprId> rest,
                     Counts counts);

  ExprId object(const Json& schema, const SchemaPlace& place);
  std::vector<Property> properties(const Json& schema, const SchemaPlace& place);
  std::optional<ExprId> other_property(const Json& schema, const std::vector<Property>& known,
                                       const SchemaPlace& place);
  ExprId free_object(const Json& schema, ExprId pair, const SchemaPlace& place);
  void check_property_counts(const Json& schema, const std::vector<Property>& known, bool others,
                             const SchemaPlace& place);
  ExprId known_object(const std::vector<Property>& known, std::optional<ExprId> other);
  ExprId pair(const Property& property);

  Counts counts(const Json& schema, const char* min, const char* max, const SchemaPlace& place);
  // Every schema with its $ref replaced by what it points to.
  Json resolved(const Json& schema, const SchemaPlace& place) const;

  Grammar& grammar_;
  const Json& root_;
  JsonSchemaOptions options_;
  JsonPieces pieces_;
  std::map<std::string, RuleId> rules_;  // by the text of the schema
  int depth_ = 0;
};

}  // namespace moeflux
