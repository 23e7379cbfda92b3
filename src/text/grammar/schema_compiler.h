// From one schema to expressions of a grammar (json_schema.cpp; scalars, arrays and objects have
// files of their own).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/grammar/json_schema.h"
#include "text/grammar/schema_branches.h"

namespace moeflux {

class SchemaCompiler {
 public:
  SchemaCompiler(Grammar& grammar, const Json& schema, const JsonSchemaOptions& options);

  ExprId run();

 private:
  struct Counts {
    std::uint32_t min, max;
  };
  struct Member {
    std::string name;
    ExprId value;
    bool required;
  };
  // Members without names of their own: a name and a value, as often as wanted.
  struct Members {
    std::vector<Member> known;
    std::optional<ExprId> other;  // "name": value
  };

  ExprId visit(const Json& schema, const SchemaPlace& place);
  ExprId body(const Json& schema, const SchemaPlace& place);
  std::optional<ExprId> separate_alternatives(const Json& schema, const SchemaPlace& place);
  ExprId of_branch(const Json& flat, const SchemaPlace& place);
  ExprId listed(const Json& flat);
  ExprId of_type(JsonType type, const Json& flat, const SchemaPlace& place);
  bool accepts(const Json& flat, const Json& value);
  Counts counts(const Json& flat, const char* min, const char* max, const SchemaPlace& place);

  // schema_scalars.cpp
  ExprId string(const Json& flat, const SchemaPlace& place);
  ExprId number(bool integer, const Json& flat, const SchemaPlace& place);
  // The texts that a branch allows; what cannot be kept is noted.
  LanguageId texts(const Json& flat, const SchemaPlace& place);
  LanguageId texts_of_names(const Json& schema, const SchemaPlace& place);
  // The strings a schema is limited to, when it lists them.
  std::optional<std::vector<std::string>> listed_names(const Json& schema,
                                                       const SchemaPlace& place);

  // schema_arrays.cpp
  ExprId array(const Json& flat, const SchemaPlace& place);
  ExprId plain_array(const std::vector<ExprId>& fixed, std::optional<ExprId> rest, Counts n);
  ExprId items_after(const std::vector<ExprId>& fixed, std::size_t at, std::optional<ExprId> rest,
                     Counts n);
  std::optional<ExprId> unique_items(const std::vector<Json>& values, Counts n);
  std::optional<ExprId> containing_array(const std::vector<Json>& fixed,
                                         const std::optional<Json>& rest, Counts n,
                                         const Json& contains, const SchemaPlace& place);
  std::optional<std::vector<Json>> listed_values(const Json& schema, const SchemaPlace& place);

  // schema_objects.cpp
  ExprId object(const Json& flat, const SchemaPlace& place);
  std::vector<std::string> member_names(const Json& flat);
  std::optional<ExprId> other_members(const Json& flat, const std::vector<std::string>& names,
                                      const std::optional<Json>& name_schema,
                                      const SchemaPlace& place);
  ExprId members(const Members& members, Counts n, const SchemaPlace& place);

  Grammar& grammar_;
  JsonSchemaOptions options_;
  SchemaDocument document_;
  SchemaNotes notes_;
  SchemaBranches branches_;
  JsonPieces pieces_;
  std::map<std::string, RuleId> rules_;  // by the text of the schema
  int depth_ = 0;
};

// Decimal texts of multiples of all `steps` and of none of `others`, in a range. Nothing when that
// takes too many states.
std::optional<ExprId> add_multiples(Grammar& grammar, const DecimalRange& range,
                                    const std::vector<Json>& steps,
                                    const std::vector<Json>& others);

}  // namespace moeflux
