#include "text/grammar/schema_compiler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/grammar/decimal_range.h"
#include "text/grammar/pattern.h"
#include "text/grammar/string_format.h"

namespace moeflux {
namespace {

constexpr int kMaxSchemaDepth = 100;
constexpr int kMaxReferences = 20;  // one to the next
constexpr std::uint32_t kMaxCount = 20'000;

bool only_annotations(const Json& schema) {
  for (const auto& [name, value] : schema.items()) {
    if (!is_annotation(name)) return false;
  }
  return true;
}

}  // namespace

SchemaCompiler::SchemaCompiler(Grammar& grammar, const Json& root, const JsonSchemaOptions& options)
    : grammar_(grammar), root_(root), options_(options), pieces_(grammar, options.blanks) {}

ExprId SchemaCompiler::run() {
  return visit(root_, {options_.origin, ""});
}

ExprId SchemaCompiler::visit(const Json& schema, const SchemaPlace& place) {
  if (depth_ > kMaxSchemaDepth) {
    fail(Errc::LimitExceeded, "{}: nested deeper than {}", place.text(), kMaxSchemaDepth);
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
  check_keywords(schema, place);
  if (schema.is_boolean()) return schema == Json(true) ? pieces_.any_value() : grammar_.nothing();
  if (schema.contains("$ref")) return reference(schema, place);
  if (schema.contains("allOf")) return conjunction(schema, place);
  if (schema.contains("anyOf")) return alternatives(schema, "anyOf", place);
  if (schema.contains("oneOf")) return alternatives(schema, "oneOf", place);
  if (schema.contains("enum") || schema.contains("const")) return listed(schema, place);
  std::vector<ExprId> ways;
  for (const JsonType type : types_of(schema, place)) ways.push_back(of_type(type, schema, place));
  return grammar_.choice(std::move(ways));
}

ExprId SchemaCompiler::reference(const Json& schema, const SchemaPlace& place) {
  const Json& target = resolve_reference(root_, schema["$ref"], place);
  const Json beside = without(schema, "$ref");
  const SchemaPlace there = {place.origin, schema["$ref"].get<std::string>().substr(1)};
  if (only_annotations(beside)) return visit(target, there);
  return visit(both_schemas(resolved(target, there), beside, place), place);
}

ExprId SchemaCompiler::conjunction(const Json& schema, const SchemaPlace& place) {
  const Json& parts = schema["allOf"];
  if (!parts.is_array() || parts.empty()) (place / "allOf").bad("expected a list of schemas");
  Json all = without(schema, "allOf");
  if (only_annotations(all)) all = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const SchemaPlace part = place / "allOf" / std::to_string(i);
    check_keywords(parts[i], part);
    all = both_schemas(all, resolved(parts[i], part), part);
  }
  return visit(all, place);
}

Json SchemaCompiler::resolved(const Json& schema, const SchemaPlace& place) const {
  Json at = schema;
  for (int i = 0; at.is_object() && at.contains("$ref"); ++i) {
    if (i > kMaxReferences) place.bad("$ref leads from one schema to the next without end");
    const Json& target = resolve_reference(root_, at["$ref"], place);
    check_keywords(target, place);
    at = both_schemas(without(at, "$ref"), target, place);
  }
  return at;
}

ExprId SchemaCompiler::alternatives(const Json& schema, const std::string& keyword,
                                    const SchemaPlace& place) {
  const Json& parts = schema[keyword];
  if (!parts.is_array() || parts.empty()) (place / keyword).bad("expected a list of schemas");
  const Json beside = without(schema, keyword);
  const bool alone = only_annotations(beside);
  std::vector<Json> branches;
  std::vector<ExprId> ways;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const SchemaPlace part = place / keyword / std::to_string(i);
    check_keywords(parts[i], part);
    branches.push_back(resolved(parts[i], part));
    ways.push_back(visit(alone ? parts[i] : both_schemas(beside, branches.back(), part), part));
  }
  if (keyword == "oneOf") {
    for (std::size_t i = 0; i < branches.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (are_disjoint(branches[i], branches[j], place)) continue;
        (place / keyword)
            .unsupported(fmt::format("alternatives {} and {} may both match one value; use anyOf, "
                                     "or give them different "
                                     "types or a required property with different constants",
                                     j, i));
      }
    }
  }
  return grammar_.choice(std::move(ways));
}

ExprId SchemaCompiler::listed(const Json& schema, const SchemaPlace& place) {
  for (const auto& [name, value] : schema.items()) {
    if (name != "enum" && name != "const" && name != "type" && name != "nullable" &&
        !is_annotation(name)) {
      place.unsupported(fmt::format("\"{}\" beside enum or const is not supported", name));
    }
  }
  Json values = Json::array();
  if (schema.contains("enum")) {
    values = schema["enum"];
    if (!values.is_array() || values.empty()) (place / "enum").bad("expected a list of values");
  }
  if (schema.contains("const")) {
    const Json& only = schema["const"];
    const bool listed = std::find(values.begin(), values.end(), only) != values.end();
    values = schema.contains("enum") && !listed ? Json::array() : Json::array({only});
  }
  const bool nullable = schema.value("nullable", Json(false)) == Json(true);
  std::vector<ExprId> ways;
  bool has_null = false;
  for (const Json& value : values) {
    has_null = has_null || value.is_null();
    if (schema.contains("type") && !has_type(value, types_of(schema, place))) continue;
    ways.push_back(pieces_.value(value));
  }
  if (nullable && !has_null) ways.push_back(grammar_.literal("null"));
  if (ways.empty()) return grammar_.nothing();
  return grammar_.choice(std::move(ways));
}

ExprId SchemaCompiler::of_type(JsonType type, const Json& schema, const SchemaPlace& place) {
  switch (type) {
    case JsonType::Object:
      return object(schema, place);
    case JsonType::Array:
      return array(schema, place);
    case JsonType::String:
      return string(schema, place);
    case JsonType::Number:
      return number(false, schema, place);
    case JsonType::Integer:
      return number(true, schema, place);
    case JsonType::Boolean:
      return grammar_.choice({grammar_.literal("true"), grammar_.literal("false")});
    case JsonType::Null:
      break;
  }
  return grammar_.literal("null");
}

SchemaCompiler::Counts SchemaCompiler::counts(const Json& schema, const char* min, const char* max,
                                              const SchemaPlace& place) {
  const auto read = [&](const char* name, std::uint32_t otherwise) {
    if (!schema.contains(name)) return otherwise;
    const Json& value = schema[name];
    const double number = value.is_number() ? value.get<double>() : -1.0;
    if (number < 0 || number != std::floor(number)) {
      (place / name).bad("expected a whole number of 0 or more");
    }
    if (number > kMaxCount) {
      fail(Errc::LimitExceeded, "{}: {} is more than {}", (place / name).text(), dump_json(value),
           kMaxCount);
    }
    return static_cast<std::uint32_t>(number);
  };
  return {read(min, 0), read(max, Grammar::kUnbounded)};
}

ExprId SchemaCompiler::string(const Json& schema, const SchemaPlace& place) {
  const Counts length = counts(schema, "minLength", "maxLength", place);
  if (length.min > length.max) return grammar_.nothing();
  const bool has_pattern = schema.contains("pattern"), has_format = schema.contains("format");
  if (!has_pattern && !has_format) return pieces_.string(length.min, length.max);
  if (has_pattern && has_format) place.unsupported("pattern and format in one schema");
  const char* keyword = has_pattern ? "pattern" : "format";
  if (!schema[keyword].is_string()) (place / keyword).bad("expected a string");
  std::string text = schema[keyword].get<std::string>();
  if (has_format) {
    const auto pattern = format_pattern(text);
    if (!pattern) {
      (place / "format")
          .unsupported(fmt::format("the format \"{}\" is not supported; supported are {}", text,
                                   format_names()));
    }
    text = *pattern;
  }
  try {
    return add_pattern(grammar_, pieces_, parse_pattern(text), {length.min, length.max});
  } catch (const Error& error) {
    throw Error(error.code(), (place / keyword).text() + ": " + error.what());
  }
}

ExprId SchemaCompiler::number(bool integer, const Json& schema, const SchemaPlace& place) {
  DecimalRange range = {.integer = integer};
  bool bounded = false;
  const auto take = [&](const char* name, std::optional<DecimalBound>& bound, bool exclusive,
                        bool larger_wins) {
    if (!schema.contains(name)) return;
    const Json& value = schema[name];
    if (!value.is_number()) (place / name).bad("expected a number");
    bounded = true;
    if (bound) {
      const double other = bound->value.get<double>(), ours = value.get<double>();
      if (larger_wins ? ours < other : ours > other) return;
    }
    bound = DecimalBound{value, exclusive};
  };
  take("minimum", range.low, false, true);
  take("exclusiveMinimum", range.low, true, true);
  take("maximum", range.high, false, false);
  take("exclusiveMaximum", range.high, true, false);
  if (schema.contains("multipleOf")) {
    const Json& step = schema["multipleOf"];
    const double value = step.is_number() ? step.get<double>() : 0.0;
    if (value == 1.0) {
      range.integer = true;
      bounded = true;
    } else {
      (place / "multipleOf").unsupported("only 1 is supported");
    }
  }
  if (!bounded) return integer ? pieces_.integer() : pieces_.number();
  try {
    return add_decimal_range(grammar_, range);
  } catch (const Error& error) {
    throw Error(error.code(), place.text() + ": " + error.what());
  }
}

}  // namespace moeflux
