// What two branches allow together, and what a branch says of a member.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/grammar/pattern_language.h"
#include "text/grammar/schema_branches.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxMergeWork = 1'000'000;  // parts of schemas, copied
constexpr int kMaxEmptinessDepth = 3;

constexpr std::array<const char*, 3> kObjectParts = {"properties", "patternProperties",
                                                     "additionalProperties"};
constexpr std::array<const char*, 2> kArrayParts = {"prefixItems", "items"};
constexpr std::array<const char*, 3> kContainsParts = {"contains", "minContains", "maxContains"};

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

// The values a schema lists itself; null for one that lists none.
Json own_values(const Json& schema) {
  if (!schema.is_object()) return nullptr;
  if (const auto only = schema.find("const"); only != schema.end()) return Json::array({*only});
  const auto values = schema.find("enum");
  return values == schema.end() ? Json(nullptr) : *values;
}

// Objects with a required member that has other values in each: alternatives of a union are told
// apart without merging them.
bool differ_in_a_member(const Json& a, const Json& b) {
  if (!a.contains("required") || !b.contains("required")) return false;
  const Json *ours = nullptr, *theirs = nullptr;
  if (const auto at = a.find("properties"); at != a.end()) ours = &*at;
  if (const auto at = b.find("properties"); at != b.end()) theirs = &*at;
  if (ours == nullptr || theirs == nullptr || a.value("type", Json()) != Json("object") ||
      b.value("type", Json()) != Json("object")) {
    return false;
  }
  for (const Json& name : a["required"]) {
    const auto& text = name.get_ref<const std::string&>();
    const auto x = ours->find(text), y = theirs->find(text);
    if (x == ours->end() || y == theirs->end() || !holds(b["required"], name)) continue;
    const Json left = own_values(*x), right = own_values(*y);
    if (left.is_array() && right.is_array() && common_values(left, right).empty()) return true;
  }
  return false;
}

double number_or(const Json& schema, const char* name, double otherwise) {
  const auto at = schema.find(name);
  return at == schema.end() ? otherwise : at->get<double>();
}

}  // namespace

void put_beside(Json& flat, const Json& part) {
  Json& beside = flat["allOf"];
  if (beside.is_null()) beside = Json::array();
  if (std::find(beside.begin(), beside.end(), part) == beside.end()) beside.push_back(part);
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
      if (differ_in_a_member(x.flat, y.flat)) continue;
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

}  // namespace moeflux
