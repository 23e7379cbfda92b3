// Arrays and objects of SchemaCompiler.
#include <algorithm>

#include "base/error.h"
#include "text/grammar/schema_compiler.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxFixedItems = 500;
constexpr std::size_t kMaxProperties = 2000;

bool list_has(const Json& list, const std::string& name) {
  return std::find(list.begin(), list.end(), Json(name)) != list.end();
}

}  // namespace

ExprId SchemaCompiler::array(const Json& schema, const SchemaPlace& place) {
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
ExprId SchemaCompiler::items_after(const std::vector<ExprId>& fixed, std::size_t at,
                                   std::optional<ExprId> rest, Counts n) {
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

ExprId SchemaCompiler::object(const Json& schema, const SchemaPlace& place) {
  const std::vector<Property> known = properties(schema, place);
  const std::optional<ExprId> other = other_property(schema, known, place);
  if (known.empty() && other) return free_object(schema, *other, place);
  check_property_counts(schema, known, other.has_value(), place);
  return known_object(known, other);
}

std::vector<SchemaCompiler::Property> SchemaCompiler::properties(const Json& schema,
                                                                 const SchemaPlace& place) {
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

// A property the schema does not name. Without additionalProperties there is one only in objects of
// which nothing is known.
std::optional<ExprId> SchemaCompiler::other_property(const Json& schema,
                                                     const std::vector<Property>& known,
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
  try {
    return grammar_.sequence({pieces_.other_key(names), value});
  } catch (const Error& error) {
    throw Error(error.code(), place.text() + ": " + error.what());
  }
}

ExprId SchemaCompiler::free_object(const Json& schema, ExprId pair, const SchemaPlace& place) {
  const Counts n = counts(schema, "minProperties", "maxProperties", place);
  if (n.min > 1) {
    (place / "minProperties")
        .unsupported("more than 1 cannot be enforced for properties without names");
  }
  if (n.min > n.max) return grammar_.nothing();
  return pieces_.list("{", pair, n.min, n.max, "}");
}

void SchemaCompiler::check_property_counts(const Json& schema, const std::vector<Property>& known,
                                           bool others, const SchemaPlace& place) {
  const Counts n = counts(schema, "minProperties", "maxProperties", place);
  const auto required = static_cast<std::size_t>(
      std::count_if(known.begin(), known.end(), [](const Property& p) { return p.required; }));
  if (n.min > required) {
    (place / "minProperties").unsupported("more than the required properties cannot be enforced");
  }
  if (n.max < known.size() || (others && n.max != Grammar::kUnbounded)) {
    (place / "maxProperties").unsupported("fewer than the possible properties cannot be enforced");
  }
}

ExprId SchemaCompiler::pair(const Property& property) {
  return grammar_.sequence({pieces_.key(property.name), property.value});
}

// In the order of the schema: each property with a comma before it, except the first one written.
// after[i] is what follows when something was written before property i, first[i] when nothing was.
ExprId SchemaCompiler::known_object(const std::vector<Property>& known,
                                    std::optional<ExprId> other) {
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

}  // namespace moeflux
