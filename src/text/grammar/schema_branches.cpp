#include "text/grammar/schema_branches.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/grammar/pattern_language.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxBranches = 256;
constexpr std::size_t kMaxMergeWork = 4'000'000;  // parts of schemas, copied
constexpr int kMaxCombinations = 80;
constexpr int kMaxEmptinessDepth = 3;

constexpr std::array<const char*, 3> kObjectParts = {"properties", "patternProperties",
                                                     "additionalProperties"};
constexpr std::array<const char*, 2> kArrayParts = {"prefixItems", "items"};
constexpr std::array<const char*, 3> kContainsParts = {"contains", "minContains", "maxContains"};
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

std::size_t weight(const Json& json) {
  std::size_t n = 1;
  if (json.is_structured()) {
    for (const Json& part : json) n += weight(part);
  }
  return n;
}

template <std::size_t N>
bool is_one_of(const std::string& name, const std::array<const char*, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <std::size_t N>
Json picked(const Json& schema, const std::array<const char*, N>& names) {
  Json out = Json::object();
  for (const char* name : names) {
    if (schema.contains(name)) out[name] = schema[name];
  }
  return out;
}

void put_beside(Json& flat, const Json& part) {
  Json& beside = flat["allOf"];
  if (beside.is_null()) beside = Json::array();
  if (std::find(beside.begin(), beside.end(), part) == beside.end()) beside.push_back(part);
}

// A group of keywords that only together mean something.
template <std::size_t N>
void merge_group(Json& out, const Json& b, const std::array<const char*, N>& names) {
  const Json ours = picked(out, names), theirs = picked(b, names);
  if (theirs.empty() || theirs == ours) return;
  if (ours.empty()) {
    out.update(theirs);
  } else {
    put_beside(out, theirs);
  }
}

Json as_list(const Json& type) {
  return type.is_array() ? type : Json::array({type});
}

bool holds(const Json& list, const Json& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Json common_types(const Json& a, const Json& b) {
  const Json x = as_list(a), y = as_list(b);
  Json both = Json::array();
  for (const Json& type : x) {
    if (holds(y, type)) {
      both.push_back(type);
    } else if (type == Json("integer") && holds(y, "number")) {
      both.push_back("integer");
    } else if (type == Json("number") && holds(y, "integer")) {
      both.push_back("integer");
    }
  }
  return both;
}

Json common_values(const Json& a, const Json& b) {
  Json both = Json::array();
  for (const Json& value : a) {
    if (std::any_of(b.begin(), b.end(), [&](const Json& v) { return equal_values(v, value); }))
      both.push_back(value);
  }
  return both;
}

void merge_keyword(Json& out, const std::string& name, const Json& theirs) {
  static constexpr std::array<const char*, 5> kLarger = {"minimum", "exclusiveMinimum", "minLength",
                                                         "minItems", "minProperties"};
  static constexpr std::array<const char*, 5> kSmaller = {"maximum", "exclusiveMaximum",
                                                          "maxLength", "maxItems", "maxProperties"};
  const auto at = out.find(name);
  if (at == out.end()) {
    out[name] = theirs;
    return;
  }
  Json& ours = *at;
  if (is_one_of(name, kLarger)) {
    if (ours.get<double>() < theirs.get<double>()) ours = theirs;
  } else if (is_one_of(name, kSmaller)) {
    if (ours.get<double>() > theirs.get<double>()) ours = theirs;
  } else if (name == "required") {
    for (const Json& item : theirs) {
      if (!holds(ours, item)) ours.push_back(item);
    }
  } else if (name == "type") {
    ours = common_types(ours, theirs);
  } else if (name == "enum") {
    ours = common_values(ours, theirs);
  } else if (name == "uniqueItems") {
    ours = ours == Json(true) || theirs == Json(true);
  } else if (ours != theirs) {
    put_beside(out, {{name, theirs}});
  }
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

double number_or(const Json& schema, const char* name, double otherwise) {
  const auto at = schema.find(name);
  return at == schema.end() ? otherwise : at->get<double>();
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

std::vector<const Json*> layers(const Json& flat, std::initializer_list<const char*> keywords) {
  std::vector<const Json*> out;
  const auto take = [&](const Json& part) {
    const bool has = std::any_of(keywords.begin(), keywords.end(),
                                 [&](const char* name) { return part.contains(name); });
    if (has) out.push_back(&part);
  };
  take(flat);
  if (flat.contains("allOf")) {
    for (const Json& part : flat["allOf"]) take(part);
  }
  return out;
}

std::vector<const Json*> object_layers(const Json& flat) {
  return layers(flat, {"properties", "patternProperties", "additionalProperties"});
}

std::vector<const Json*> array_layers(const Json& flat) {
  return layers(flat, {"prefixItems", "items"});
}

std::optional<LanguageId> SchemaBranches::language(const std::string& pattern) {
  const auto [at, is_new] = patterns_.try_emplace(pattern);
  if (is_new) {
    try {
      at->second = pattern_language(languages_, pattern);
    } catch (const Error&) {
      at->second = std::nullopt;
    }
  }
  return at->second;
}

bool SchemaBranches::matches(const std::string& pattern, const std::string& name) {
  const auto known = language(pattern);
  return known && languages_.contains(*known, name);
}

std::optional<Json> SchemaBranches::member(const Json& flat, const std::string& name) {
  Json out = true;
  bool is_named = false;
  for (const Json* layer : object_layers(flat)) {
    bool matched = false;
    const auto constrain = [&](const Json& schema) {
      matched = is_named = true;
      out = all_of(out, schema);
    };
    if (layer->contains("properties")) {
      const Json& named = (*layer)["properties"];
      if (const auto at = named.find(name); at != named.end()) constrain(*at);
    }
    if (layer->contains("patternProperties")) {
      for (const auto& [pattern, schema] : (*layer)["patternProperties"].items()) {
        if (matches(pattern, name)) constrain(schema);
      }
    }
    if (!matched && layer->contains("additionalProperties")) {
      constrain((*layer)["additionalProperties"]);
    }
  }
  if (!is_named) return std::nullopt;
  return out;
}

// No value, as far as that is seen without looking deep.
bool SchemaBranches::is_empty(const Json& flat) {
  const auto type = flat.find("type");
  if (type != flat.end() && type->is_array() && type->empty()) return true;
  if (const auto values = flat.find("enum"); values != flat.end()) {
    const JsonTypes types = type == flat.end() ? all_types() : types_of(flat);
    const bool any = std::any_of(values->begin(), values->end(),
                                 [&](const Json& value) { return has_type(value, types); });
    if (!any) return true;
  }
  if (type == flat.end()) return false;
  const JsonTypes types = types_of(flat);
  if (types.size() != 1) return false;
  constexpr double kFar = 1e300;
  switch (*types.begin()) {
    case JsonType::String:
      return number_or(flat, "minLength", 0) > number_or(flat, "maxLength", kFar);
    case JsonType::Array:
      return number_or(flat, "minItems", 0) > number_or(flat, "maxItems", kFar);
    case JsonType::Number:
    case JsonType::Integer: {
      const double low = number_or(flat, "minimum", -kFar), high = number_or(flat, "maximum", kFar);
      const double above = number_or(flat, "exclusiveMinimum", -kFar * 10),
                   below = number_or(flat, "exclusiveMaximum", kFar * 10);
      return low > high || above >= high || low >= below || above >= below;
    }
    case JsonType::Object:
      break;
    default:
      return false;
  }
  if (!flat.contains("required") || emptiness_depth_ >= kMaxEmptinessDepth) return false;
  ++emptiness_depth_;
  bool empty = false;
  for (const Json& name : flat["required"]) {
    const auto value = member(flat, name.get<std::string>());
    if (!value || empty) continue;
    if (*value == Json(false)) {
      empty = true;
    } else if (value->is_object() && value->contains("allOf") && value->size() == 1) {
      // Two of them speak of it: they may contradict each other.
      const SchemaNotes before = notes_;
      try {
        empty = of(*value, {document_.origin(), ""}).empty();
      } catch (const Error&) {
      }
      notes_ = before;
    }
  }
  --emptiness_depth_;
  return empty;
}

std::optional<Json> SchemaBranches::merged(const Json& a, const Json& b) {
  work_ += weight(a) + weight(b);
  if (work_ > kMaxMergeWork) {
    fail(Errc::LimitExceeded,
         "{}: its alternatives take more than {} steps to work out; write fewer of them",
         document_.origin(), kMaxMergeWork);
  }
  Json out = a;
  merge_group(out, b, kObjectParts);
  merge_group(out, b, kArrayParts);
  merge_group(out, b, kContainsParts);
  for (const auto& [name, value] : b.items()) {
    if (is_one_of(name, kObjectParts) || is_one_of(name, kArrayParts) ||
        is_one_of(name, kContainsParts)) {
      continue;
    }
    if (name == "allOf") {
      for (const Json& part : value) put_beside(out, part);
    } else {
      merge_keyword(out, name, value);
    }
  }
  if (is_empty(out)) return std::nullopt;
  return out;
}

SchemaBranches::Branches SchemaBranches::joined(const Branches& a, const Branches& b) {
  Branches out;
  for (const SchemaBranch& x : a) {
    for (const SchemaBranch& y : b) {
      auto flat = merged(x.flat, y.flat);
      if (!flat) continue;
      SchemaBranch both = {std::move(*flat), x.evaluated};
      both.evaluated.add(y.evaluated);
      const bool known = std::any_of(out.begin(), out.end(), [&](const SchemaBranch& other) {
        return other.flat == both.flat && other.evaluated.names == both.evaluated.names;
      });
      if (!known) out.push_back(std::move(both));
    }
  }
  return out;
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
    if (!is_one_of(name, kApplied)) base.flat[name] = value;
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

bool SchemaBranches::are_disjoint(const Json& a, const Json& b, const SchemaPlace& place) {
  return joined(of(a, place), of(b, place)).empty();
}

}  // namespace moeflux
