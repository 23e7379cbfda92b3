#include "text/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "text/grammar/schema_check.h"
#include "text/grammar/schema_compiler.h"

namespace moeflux {
namespace {

constexpr int kMaxVisitDepth = 200;  // of schemas in each other, and of what they come to
constexpr std::uint32_t kMaxCount = 20'000;

bool only_has(const Json& schema, std::string_view keyword) {
  return std::all_of(schema.items().begin(), schema.items().end(), [&](const auto& member) {
    return member.key() == keyword || !is_assertion(member.key());
  });
}

Grammar as_document(Grammar grammar, ExprId value, const JsonSchemaOptions& options) {
  if (options.leading_newlines) {
    value = grammar.sequence({grammar.repeat(grammar.literal("\n"), 0, 2), value});
  }
  grammar.set_root(grammar.declare(options.origin, value));
  return grammar;
}

}  // namespace

SchemaCompiler::SchemaCompiler(Grammar& grammar, const Json& schema,
                               const JsonSchemaOptions& options)
    : grammar_(grammar),
      options_(options),
      document_(schema, options.origin),
      branches_(document_, notes_),
      pieces_(grammar, options.blanks) {}

ExprId SchemaCompiler::run() {
  const ExprId value = visit(document_.root(), {options_.origin, ""});
  notes_.insert(document_.unresolved().begin(), document_.unresolved().end());
  for (const std::string& note : notes_) grammar_.add_note(note);
  return value;
}

// Each different schema becomes one rule: so recursion ends, and what is used twice is shared.
ExprId SchemaCompiler::visit(const Json& schema, const SchemaPlace& place) {
  if (depth_ > kMaxVisitDepth) {
    fail(Errc::LimitExceeded, "{}: nested deeper than {}", place.text(), kMaxVisitDepth);
  }
  const auto [at, is_new] = rules_.try_emplace(dump_json(schema), 0);
  if (!is_new) return grammar_.rule(at->second);
  const RuleId rule = grammar_.declare(place.text());
  at->second = rule;
  ++depth_;
  grammar_.define(rule, body(schema, place));
  --depth_;
  return grammar_.rule(rule);
}

ExprId SchemaCompiler::body(const Json& schema, const SchemaPlace& place) {
  if (schema.is_boolean()) return schema == Json(true) ? pieces_.any_value() : grammar_.nothing();
  if (auto ways = separate_alternatives(schema, place)) return *ways;
  std::vector<ExprId> ways;
  for (const SchemaBranch& branch : branches_.of(schema, place)) {
    ways.push_back(of_branch(branch.flat, place));
  }
  return ways.empty() ? grammar_.nothing() : grammar_.choice(std::move(ways));
}

// What need not be worked out together becomes rules of its own, which may recur.
std::optional<ExprId> SchemaCompiler::separate_alternatives(const Json& schema,
                                                            const SchemaPlace& place) {
  if (schema.contains("$ref") && (schema.contains("$refAlone") || only_has(schema, "$ref"))) {
    const auto target = schema["$ref"].get<std::string>();
    return visit(document_.at(target), {place.origin, target.substr(1)});
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (!schema.contains(keyword) || !only_has(schema, keyword)) continue;
    const Json& parts = schema[keyword];
    std::vector<std::vector<SchemaBranch>> each;
    for (std::size_t i = 0; i < parts.size() && keyword == std::string_view("oneOf"); ++i) {
      each.push_back(branches_.of(parts[i], place / keyword / std::to_string(i)));
      for (std::size_t j = 0; j < i; ++j) {
        if (!branches_.are_disjoint(each[i], each[j])) return std::nullopt;
      }
    }
    std::vector<ExprId> ways;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      ways.push_back(visit(parts[i], place / keyword / std::to_string(i)));
    }
    return grammar_.choice(std::move(ways));
  }
  return std::nullopt;
}

ExprId SchemaCompiler::of_branch(const Json& flat, const SchemaPlace& place) {
  if (flat.contains("enum")) return listed(flat);
  JsonTypes types = all_types();
  if (flat.contains("type")) {
    types = types_of(flat);
  } else if (!options_.as_standard) {
    types = types_of(flat);
    if (flat.contains("allOf")) {  // what merged parts are about
      JsonTypes about = without(flat, "allOf").empty() ? JsonTypes() : types;
      for (const Json& part : flat["allOf"]) {
        const Json& said = part.contains("not") ? part["not"] : part;
        for (const JsonType type : types_of(said)) about.insert(type);
      }
      types = about;
    }
  }
  std::vector<ExprId> ways;
  for (const JsonType type : types) ways.push_back(of_type(type, flat, place));
  return ways.empty() ? grammar_.nothing() : grammar_.choice(std::move(ways));
}

bool SchemaCompiler::accepts(const Json& flat, const Json& value) {
  return !SchemaCheck(document_).violation(flat, value).has_value();
}

ExprId SchemaCompiler::listed(const Json& flat) {
  std::vector<ExprId> ways;
  for (const Json& value : flat["enum"]) {
    if (accepts(flat, value)) ways.push_back(pieces_.value(value));
  }
  return ways.empty() ? grammar_.nothing() : grammar_.choice(std::move(ways));
}

ExprId SchemaCompiler::of_type(JsonType type, const Json& flat, const SchemaPlace& place) {
  switch (type) {
    case JsonType::Object:
      return object(flat, place);
    case JsonType::Array:
      return array(flat, place);
    case JsonType::String:
      return string(flat, place);
    case JsonType::Number:
      return number(false, flat, place);
    case JsonType::Integer:
      return number(true, flat, place);
    case JsonType::Boolean:
      return grammar_.choice({grammar_.literal("true"), grammar_.literal("false")});
    case JsonType::Null:
      break;
  }
  return grammar_.literal("null");
}

SchemaCompiler::Counts SchemaCompiler::counts(const Json& flat, const char* min, const char* max,
                                              const SchemaPlace& place) {
  const auto read = [&](const char* name, std::uint32_t otherwise) {
    if (!flat.contains(name)) return otherwise;
    const double number = flat[name].get<double>();
    if (number <= kMaxCount) return static_cast<std::uint32_t>(number);
    if (name == std::string_view(max)) return otherwise;  // nobody gets there
    fail(Errc::LimitExceeded, "{}: {} is more than {}", (place / name).text(),
         dump_json(flat[name]), kMaxCount);
  };
  return {read(min, 0), read(max, Grammar::kUnbounded)};
}

ExprId add_json_schema(Grammar& grammar, const Json& schema, const JsonSchemaOptions& options) {
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
