#include "text/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/grammar/schema_keywords.h"

namespace moeflux {
namespace {

constexpr int kMaxSchemaDepth = 100;
constexpr int kMaxReferences = 20;  // one to the next
constexpr std::uint32_t kMaxCount = 20'000;
constexpr std::size_t kMaxFixedItems = 500;
constexpr std::size_t kMaxProperties = 2000;

bool only_annotations(const Json& schema) {
  for (const auto& [name, value] : schema.items()) {
    if (!is_annotation(name)) return false;
  }
  return true;
}

bool list_has(const Json& list, const std::string& name) {
  return std::find(list.begin(), list.end(), Json(name)) != list.end();
}

// Errors of what does not know its place.
template <class Make>
ExprId naming(const SchemaPlace& place, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    throw Error(error.code(), place.text() + ": " + error.what());
  }
}

// From one schema to expressions of a grammar.
class SchemaCompiler {
 public:
  SchemaCompiler(Grammar& grammar, const Json& root, const JsonSchemaOptions& options)
      : grammar_(grammar), root_(root), options_(options), pieces_(grammar, options.blanks) {}

  ExprId run() { return visit(root_, {options_.origin, ""}); }

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
  ExprId visit(const Json& schema, const SchemaPlace& place) {
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

  ExprId body(const Json& schema, const SchemaPlace& place) {
    check_keywords(schema, place);
    if (schema.is_boolean()) return schema == Json(true) ? pieces_.any_value() : grammar_.nothing();
    if (schema.contains("$ref")) return reference(schema, place);
    if (schema.contains("allOf")) return conjunction(schema, place);
    if (schema.contains("anyOf")) return alternatives(schema, "anyOf", place);
    if (schema.contains("oneOf")) return alternatives(schema, "oneOf", place);
    if (schema.contains("enum") || schema.contains("const")) return listed(schema, place);
    std::vector<ExprId> ways;
    for (const JsonType type : types_of(schema, place))
      ways.push_back(of_type(type, schema, place));
    return grammar_.choice(std::move(ways));
  }

  ExprId reference(const Json& schema, const SchemaPlace& place) {
    const Json& target = resolve_reference(root_, schema["$ref"], place);
    const Json beside = without(schema, "$ref");
    const SchemaPlace there = {place.origin, schema["$ref"].get<std::string>().substr(1)};
    if (only_annotations(beside)) return visit(target, there);
    return visit(both_schemas(resolved(target, there), beside, place), place);
  }

  ExprId conjunction(const Json& schema, const SchemaPlace& place) {
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

  ExprId alternatives(const Json& schema, const std::string& keyword, const SchemaPlace& place) {
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
              .unsupported(
                  fmt::format("alternatives {} and {} may both match one value; use anyOf, "
                              "or give them different "
                              "types or a required property with different constants",
                              j, i));
        }
      }
    }
    return grammar_.choice(std::move(ways));
  }

  ExprId listed(const Json& schema, const SchemaPlace& place) {
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

  ExprId of_type(JsonType type, const Json& schema, const SchemaPlace& place) {
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

  ExprId string(const Json& schema, const SchemaPlace& place) {
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
    return naming(place / keyword, [&] {
      return add_pattern(grammar_, pieces_, text, {length.min, length.max});
    });
  }

  ExprId number(bool integer, const Json& schema, const SchemaPlace& place) {
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
    return naming(place, [&] { return add_decimal_range(grammar_, range); });
  }

  ExprId array(const Json& schema, const SchemaPlace& place) {
    Counts n = counts(schema, "minItems", "maxItems", place);
    if (schema.value("uniqueItems", Json(false)) == Json(true) && n.max > 1) {
      (place / "uniqueItems").unsupported("different items cannot be enforced");
    }
    std::vector<ExprId> fixed;
    if (schema.contains("prefixItems")) {
      const Json& list = schema["prefixItems"];
      const SchemaPlace at = place / "prefixItems";
      if (!list.is_array()) at.bad("expected a list of schemas");
      if (list.size() > kMaxFixedItems) {
        fail(Errc::LimitExceeded, "{}: more than {} items", at.text(), kMaxFixedItems);
      }
      for (std::size_t i = 0; i < list.size() && i < n.max; ++i) {
        fixed.push_back(visit(list[i], at / std::to_string(i)));
      }
    }
    std::optional<ExprId> rest;
    if (const auto items = schema.find("items"); items != schema.end()) {
      if (items->is_array()) {
        (place / "items").unsupported("a list is the old spelling of prefixItems; use that");
      }
      if (*items != Json(false)) rest = visit(*items, place / "items");
    } else if (fixed.empty() || n.min > fixed.size()) {
      rest = pieces_.any_value();
    }
    if (!rest) n.max = std::min(n.max, static_cast<std::uint32_t>(fixed.size()));
    if (n.min > n.max) return grammar_.nothing();
    if (fixed.empty()) {
      return rest ? pieces_.list("[", *rest, n.min, n.max, "]") : grammar_.literal("[]");
    }
    const ExprId end = grammar_.literal("]");
    std::vector<ExprId> ways;
    if (n.min == 0) ways.push_back(end);
    ways.push_back(grammar_.sequence(
        {pieces_.blank(), fixed[0], items_after(fixed, 1, rest, n), pieces_.blank(), end}));
    return grammar_.sequence({grammar_.literal("["), grammar_.choice(std::move(ways))});
  }

  // What may follow the first `at` items. A rule of its own, so that long lists do not nest.
  ExprId items_after(const std::vector<ExprId>& fixed, std::size_t at, std::optional<ExprId> rest,
                     Counts n) {
    ExprId tail = grammar_.literal("");
    if (rest && n.max > fixed.size()) {
      const auto done = static_cast<std::uint32_t>(fixed.size());
      const std::uint32_t more = n.max == Grammar::kUnbounded ? n.max : n.max - done;
      tail = grammar_.repeat(grammar_.sequence({pieces_.comma(), *rest}),
                             n.min > done ? n.min - done : 0, more);
    }
    for (std::size_t i = fixed.size(); i-- > at;) {
      const ExprId next = grammar_.sequence({pieces_.comma(), fixed[i], tail});
      tail = grammar_.rule(grammar_.declare("items", i < n.min ? next : grammar_.optional(next)));
    }
    return tail;
  }

  ExprId object(const Json& schema, const SchemaPlace& place) {
    const std::vector<Property> known = properties(schema, place);
    const std::optional<ExprId> other = other_property(schema, known, place);
    if (known.empty() && other) return free_object(schema, *other, place);
    check_property_counts(schema, known, other.has_value(), place);
    return known_object(known, other);
  }

  std::vector<Property> properties(const Json& schema, const SchemaPlace& place) {
    const Json named = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    if (!named.is_object()) (place / "properties").bad("expected an object");
    if (!required.is_array()) (place / "required").bad("expected a list of names");
    if (named.size() + required.size() > kMaxProperties) {
      fail(Errc::LimitExceeded, "{}: more than {} properties", place.text(), kMaxProperties);
    }
    std::vector<Property> out;
    for (const auto& [name, value] : named.items()) {
      const bool needed = list_has(required, name);
      if (value == Json(false) && !needed) continue;
      out.push_back({name, visit(value, place / "properties" / name), needed});
    }
    for (const Json& name : required) {
      if (!name.is_string()) (place / "required").bad("expected a list of names");
      const auto& text = name.get_ref<const std::string&>();
      if (std::any_of(out.begin(), out.end(), [&](const Property& p) { return p.name == text; })) {
        continue;
      }
      const Json others = schema.value("additionalProperties", Json(true));
      if (others == Json(false)) {
        (place / "required").bad(fmt::format("\"{}\" is required but not allowed", text));
      }
      out.push_back({text, visit(others, place / "additionalProperties"), true});
    }
    return out;
  }

  // A property the schema does not name. Without additionalProperties there is one only in objects
  // of which nothing is known.
  std::optional<ExprId> other_property(const Json& schema, const std::vector<Property>& known,
                                       const SchemaPlace& place) {
    const bool open = known.empty() && !schema.contains("properties");
    const Json others = schema.value("additionalProperties", Json(open));
    if (others == Json(false)) return std::nullopt;
    const ExprId value = visit(others, place / "additionalProperties");
    // Also those that must not appear.
    std::vector<std::string> names;
    for (const Property& property : known) names.push_back(property.name);
    const Json named = schema.value("properties", Json::object());
    for (const auto& [name, unused] : named.items()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return naming(place, [&] { return grammar_.sequence({pieces_.other_key(names), value}); });
  }

  ExprId free_object(const Json& schema, ExprId pair, const SchemaPlace& place) {
    const Counts n = counts(schema, "minProperties", "maxProperties", place);
    if (n.min > 1) {
      (place / "minProperties")
          .unsupported("more than 1 cannot be enforced for properties without names");
    }
    if (n.min > n.max) return grammar_.nothing();
    return pieces_.list("{", pair, n.min, n.max, "}");
  }

  void check_property_counts(const Json& schema, const std::vector<Property>& known, bool others,
                             const SchemaPlace& place) {
    const Counts n = counts(schema, "minProperties", "maxProperties", place);
    const auto required = static_cast<std::size_t>(
        std::count_if(known.begin(), known.end(), [](const Property& p) { return p.required; }));
    if (n.min > required) {
      (place / "minProperties").unsupported("more than the required properties cannot be enforced");
    }
    if (n.max < known.size() || (others && n.max != Grammar::kUnbounded)) {
      (place / "maxProperties")
          .unsupported("fewer than the possible properties cannot be enforced");
    }
  }

  // In the order of the schema: each property with a comma before it, except the first one written.
  // after[i] is what follows when something was written before property i, first[i] when nothing
  // was.
  ExprId known_object(const std::vector<Property>& known, std::optional<ExprId> other) {
    Grammar& g = grammar_;
    ExprId after = g.literal(""), first = g.nothing();
    if (other) {
      after = g.repeat(g.sequence({pieces_.comma(), *other}), 0, Grammar::kUnbounded);
      first = g.sequence({*other, after});
    }
    for (std::size_t i = known.size(); i-- > 0;) {
      const ExprId written = pair(known[i]), more = g.sequence({pieces_.comma(), written});
      const ExprId begin = g.sequence({written, after});
      first = known[i].required ? begin : g.rule(g.declare("first", g.choice({begin, first})));
      after = g.rule(
          g.declare("after", g.sequence({known[i].required ? more : g.optional(more), after})));
    }
    const bool may_be_empty =
        std::none_of(known.begin(), known.end(), [](const Property& p) { return p.required; });
    const ExprId end = g.literal("}");
    std::vector<ExprId> ways;
    if (may_be_empty) ways.push_back(end);
    ways.push_back(g.sequence({pieces_.blank(), first, pieces_.blank(), end}));
    return g.sequence({g.literal("{"), g.choice(std::move(ways))});
  }

  ExprId pair(const Property& property) {
    return grammar_.sequence({pieces_.key(property.name), property.value});
  }

  Counts counts(const Json& schema, const char* min, const char* max, const SchemaPlace& place) {
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
  // Every schema with its $ref replaced by what it points to.

  Json resolved(const Json& schema, const SchemaPlace& place) const {
    Json at = schema;
    for (int i = 0; at.is_object() && at.contains("$ref"); ++i) {
      if (i > kMaxReferences) place.bad("$ref leads from one schema to the next without end");
      const Json& target = resolve_reference(root_, at["$ref"], place);
      check_keywords(target, place);
      at = both_schemas(without(at, "$ref"), target, place);
    }
    return at;
  }

  Grammar& grammar_;
  const Json& root_;
  JsonSchemaOptions options_;
  JsonPieces pieces_;
  std::map<std::string, RuleId> rules_;  // by the text of the schema
  int depth_ = 0;
};

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
