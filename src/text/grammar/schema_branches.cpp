#include "text/grammar/schema_branches.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxBranches = 256;
constexpr int kMaxCombinations = 80;

constexpr std::array<const char*, 12> kApplied = {"$ref",
                                                  "allOf",
                                                  "anyOf",
                                                  "oneOf",
                                                  "not",
                                                  "if",
                                                  "then",
                                                  "else",
                                                  "dependentRequired",
                                                  "dependentSchemas",
                                                  "unevaluatedProperties",
                                                  "unevaluatedItems"};

bool is_applied(const std::string& name) {
  return std::find(kApplied.begin(), kApplied.end(), name) != kApplied.end();
}

// Strings or numbers without some: what a branch can say itself.
bool is_plain_refusal(const Json& own) {
  const Json& refusal = own["not"];
  if (!refusal.is_object() || refusal.size() != 1 || !own.contains("type")) return false;
  const Json& type = own["type"];
  if (refusal.contains("pattern")) return type == Json("string");
  if (refusal.contains("multipleOf")) return type == Json("number") || type == Json("integer");
  return refusal.contains("enum") && type == Json("string") &&
         std::all_of(refusal["enum"].begin(), refusal["enum"].end(),
                     [](const Json& value) { return value.is_string(); });
}

}  // namespace

void EvaluatedParts::add(const EvaluatedParts& other) {
  names.insert(other.names.begin(), other.names.end());
  patterns.insert(patterns.end(), other.patterns.begin(), other.patterns.end());
  all_names = all_names || other.all_names;
  n_items = std::max(n_items, other.n_items);
  all_items = all_items || other.all_items;
  contains.insert(contains.end(), other.contains.begin(), other.contains.end());
}

void SchemaBranches::join(Branches& out, const Branches& more, const SchemaPlace& keyword) {
  if (out.size() * more.size() > kMaxBranches) {
    note(keyword);
  } else {
    out = joined(out, more);
  }
}

SchemaBranches::Branches SchemaBranches::of(const Json& schema, const SchemaPlace& place) {
  if (schema.is_boolean()) return schema == Json(true) ? Branches(1) : Branches();
  if (depth_ >= kMaxCombinations) {
    fail(Errc::LimitExceeded, "{}: combinations nested deeper than {}", place.text(),
         kMaxCombinations);
  }
  ++depth_;
  Branches out;
  if (schema.contains("$refAlone")) {
    out = applied({{"$ref", schema["$ref"]}}, place);
  } else {
    out = applied(modern_schema(schema), place);
  }
  --depth_;
  return out;
}

SchemaBranches::Branches SchemaBranches::applied(const Json& own, const SchemaPlace& place) {
  SchemaBranch base;
  for (const auto& [name, value] : own.items()) {
    if (!is_applied(name)) base.flat[name] = value;
  }
  if (!base.flat.contains("contains")) {
    base.flat.erase("minContains");
    base.flat.erase("maxContains");
  } else {
    base.evaluated.contains.push_back(base.flat["contains"]);
  }
  if (own.contains("properties")) {
    for (const auto& [name, unused] : own["properties"].items()) base.evaluated.names.insert(name);
  }
  if (own.contains("patternProperties")) {
    for (const auto& [pattern, unused] : own["patternProperties"].items())
      base.evaluated.patterns.push_back(pattern);
  }
  base.evaluated.all_names = own.contains("additionalProperties");
  base.evaluated.all_items = own.contains("items");
  if (own.contains("prefixItems")) base.evaluated.n_items = own["prefixItems"].size();
  if (is_empty(base.flat)) return {};
  Branches out = {std::move(base)};
  if (own.contains("$ref")) {
    const std::string target = own["$ref"].get<std::string>();
    if (!open_.insert(target).second) {
      place.bad("$ref leads from one schema to the next without end (left recursion)");
    }
    join(out, of(document_.at(target), {place.origin, target.substr(1)}), place / "$ref");
    open_.erase(target);
  }
  if (own.contains("allOf")) {
    for (std::size_t i = 0; i < own["allOf"].size(); ++i) {
      const SchemaPlace part = place / "allOf" / std::to_string(i);
      join(out, of(own["allOf"][i], part), part);
    }
  }
  if (own.contains("anyOf")) join(out, any_of(own["anyOf"], place / "anyOf"), place / "anyOf");
  if (own.contains("oneOf")) join(out, one_of(own["oneOf"], place / "oneOf"), place / "oneOf");
  if (own.contains("not")) {
    const Json& refusal = own["not"];
    if (is_plain_refusal(own)) {
      join(out, {{{{"allOf", Json::array({{{"not", refusal}}})}}, {}}}, place / "not");
    } else {
      join(out, refused(refusal, place / "not"), place / "not");
    }
  }
  if (own.contains("if")) join(out, conditional(own, place), place / "if");
  join_dependencies(out, own, place);
  apply_unevaluated(out, own);
  return out;
}

SchemaBranches::Branches SchemaBranches::any_of(const Json& parts, const SchemaPlace& place) {
  Branches out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (SchemaBranch& branch : of(parts[i], place / std::to_string(i))) {
      out.push_back(std::move(branch));
    }
  }
  return out;
}

// Each alternative without those of the others that it does not exclude already.
SchemaBranches::Branches SchemaBranches::one_of(const Json& parts, const SchemaPlace& place) {
  std::vector<Branches> each;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    each.push_back(of(parts[i], place / std::to_string(i)));
  }
  Branches out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Branches only = each[i];
    for (std::size_t j = 0; j < parts.size(); ++j) {
      if (i == j || joined(only, each[j]).empty()) continue;
      const auto others = negation(parts[j]);
      if (!others) {
        note(place);
        continue;
      }
      Branches not_other = of(*others, place / std::to_string(j));
      for (SchemaBranch& branch : not_other) branch.evaluated = {};
      join(only, not_other, place);
    }
    for (SchemaBranch& branch : only) out.push_back(std::move(branch));
  }
  return out;
}

SchemaBranches::Branches SchemaBranches::refused(const Json& schema, const SchemaPlace& place) {
  const auto others = negation(schema);
  if (!others) {
    note(place);
    return Branches(1);
  }
  Branches out = of(*others, place);
  for (SchemaBranch& branch : out) branch.evaluated = {};
  return out;
}

SchemaBranches::Branches SchemaBranches::conditional(const Json& own, const SchemaPlace& place) {
  Branches yes = of(own["if"], place / "if");
  if (!own.contains("then") && !own.contains("else")) {
    Branches no = refused(own["if"], place / "if");
    yes.insert(yes.end(), no.begin(), no.end());
    return yes;
  }
  if (own.contains("then")) join(yes, of(own["then"], place / "then"), place / "then");
  Branches no = refused(own["if"], place / "if");
  if (own.contains("else")) join(no, of(own["else"], place / "else"), place / "else");
  yes.insert(yes.end(), no.begin(), no.end());
  return yes;
}

void SchemaBranches::join_dependencies(Branches& out, const Json& own, const SchemaPlace& place) {
  const auto absent = [](const std::string& name) {
    return SchemaBranch{{{"properties", {{name, false}}}}, {}};
  };
  if (own.contains("dependentRequired")) {
    for (const auto& [name, needed] : own["dependentRequired"].items()) {
      Json required = Json::array({name});
      for (const Json& other : needed) required.push_back(other);
      join(out, {absent(name), {{{"required", required}}, {}}}, place / "dependentRequired" / name);
    }
  }
  if (own.contains("dependentSchemas")) {
    for (const auto& [name, schema] : own["dependentSchemas"].items()) {
      const SchemaPlace here = place / "dependentSchemas" / name;
      Branches with = {{{{"required", Json::array({name})}}, {}}};
      join(with, of(schema, here), here);
      with.push_back(absent(name));
      join(out, with, here);
    }
  }
}

void SchemaBranches::apply_unevaluated(Branches& out, const Json& own) {
  for (SchemaBranch& branch : out) {
    EvaluatedParts& done = branch.evaluated;
    if (own.contains("unevaluatedProperties") && !done.all_names) {
      Json layer = {{"properties", Json::object()},
                    {"patternProperties", Json::object()},
                    {"additionalProperties", own["unevaluatedProperties"]}};
      for (const std::string& name : done.names) layer["properties"][name] = true;
      for (const std::string& pattern : done.patterns) layer["patternProperties"][pattern] = true;
      put_beside(branch.flat, layer);
      done.all_names = true;
    }
    if (own.contains("unevaluatedItems") && !done.all_items) {
      Json items = own["unevaluatedItems"];
      if (!done.contains.empty()) {
        Json ways = Json::array({items});
        for (const Json& one : done.contains) ways.push_back(one);
        items = {{"anyOf", ways}};
      }
      Json layer = {{"items", items}};
      if (done.n_items > 0) layer["prefixItems"] = Json(done.n_items, true);
      put_beside(branch.flat, layer);
      done.all_items = true;
    }
  }
  std::erase_if(out, [&](const SchemaBranch& branch) { return is_empty(branch.flat); });
}

}  // namespace moeflux
