#include "text/grammar/schema_check.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/grammar/pattern_language.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxCheckWork = 2'000'000;  // schemas looked at
constexpr int kMaxCheckDepth = 300;

std::size_t n_characters(const std::string& text) {
  std::size_t n = 0;
  for (std::size_t at = 0; at < text.size(); ++n) at += decode_utf8(text, at).length;
  return n;
}

bool is_multiple(const Json& value, const Json& step) {
  if (value.is_number_integer() && step.is_number_integer()) {
    const auto by = step.get<std::int64_t>();
    if (value.is_number_unsigned()) {
      return value.get<std::uint64_t>() % static_cast<std::uint64_t>(by) == 0;
    }
    return value.get<std::int64_t>() % by == 0;
  }
  const double ratio = value.get<double>() / step.get<double>();
  if (!std::isfinite(ratio)) return std::fmod(value.get<double>(), step.get<double>()) == 0.0;
  // Decimal fractions are not exact in binary: 0.3 is a multiple of 0.1.
  return std::abs(ratio - std::round(ratio)) < 1e-9;
}

bool all_different(const Json& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (equal_values(list[i], list[j])) return false;
    }
  }
  return true;
}

}  // namespace

bool SchemaCheck::fails(const std::string& at, const std::string& keyword) {
  if (!first_) first_ = (at.empty() ? "/" : at) + ": " + keyword;
  return false;
}

bool SchemaCheck::matches(const std::string& pattern, const std::string& text, bool otherwise) {
  const auto [at, is_new] = patterns_.try_emplace(pattern);
  try {
    if (is_new) at->second = pattern_language(languages_, pattern);
    return at->second ? languages_.contains(*at->second, text) : otherwise;
  } catch (const Error&) {
    at->second = std::nullopt;
    return otherwise;
  }
}

std::optional<std::string> SchemaCheck::violation(const Json& schema, const Json& value) {
  first_.reset();
  work_ = 0;
  depth_ = 0;
  Seen seen;
  if (valid(schema, value, "", seen)) return std::nullopt;
  return first_ ? first_ : "/: schema";
}

bool SchemaCheck::valid(const Json& schema, const Json& value, const std::string& at, Seen& seen) {
  if (schema.is_boolean()) return schema == Json(true) || fails(at, "false");
  if (++work_ > kMaxCheckWork || depth_ > kMaxCheckDepth) {
    fail(Errc::LimitExceeded, "{}: too much work to check a document of it", document_.origin());
  }
  ++depth_;
  bool ok = true;
  const Json own =
      schema.contains("$refAlone") ? Json{{"$ref", schema["$ref"]}} : modern_schema(schema);
  Seen here;
  for (const auto& [name, argument] : own.items()) {
    if (name == "unevaluatedProperties" || name == "unevaluatedItems") continue;
    ok = ok && keyword_holds(own, name, argument, value, at, here);
  }
  // These need to know what all others looked at.
  for (const char* name : {"unevaluatedProperties", "unevaluatedItems"}) {
    if (!ok || !own.contains(name)) continue;
    if (value.is_object() && name == std::string_view("unevaluatedProperties")) {
      for (const auto& [member, inner] : value.items()) {
        if (!here.names.insert(member).second) continue;
        Seen unused;
        ok = ok &&
             (valid(own[name], inner, at + "/" + pointer_step(member), unused) || fails(at, name));
      }
    }
    if (value.is_array() && name == std::string_view("unevaluatedItems")) {
      for (std::size_t i = 0; i < value.size(); ++i) {
        if (!here.items.insert(i).second) continue;
        Seen unused;
        ok = ok &&
             (valid(own[name], value[i], at + "/" + std::to_string(i), unused) || fails(at, name));
      }
    }
  }
  --depth_;
  if (!ok) return false;
  seen.names.insert(here.names.begin(), here.names.end());
  seen.items.insert(here.items.begin(), here.items.end());
  return true;
}

bool SchemaCheck::keyword_holds(const Json& own, const std::string& name, const Json& argument,
                                const Json& value, const std::string& at, Seen& seen) {
  const auto unless = [&](bool holds) { return holds || fails(at, name); };
  const auto number = [&] { return value.get<double>(); };
  if (name == "type") return unless(has_type(value, types_of(own)));
  if (name == "enum") {
    return unless(std::any_of(argument.begin(), argument.end(),
                              [&](const Json& one) { return equal_values(one, value); }));
  }
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (name == "minLength") {
      return unless(static_cast<double>(n_characters(text)) >= argument.get<double>());
    }
    if (name == "maxLength") {
      return unless(static_cast<double>(n_characters(text)) <= argument.get<double>());
    }
    if (name == "pattern") return unless(matches(argument.get<std::string>(), text, true));
  }
  if (value.is_number()) {
    if (name == "minimum") return unless(number() >= argument.get<double>());
    if (name == "maximum") return unless(number() <= argument.get<double>());
    if (name == "exclusiveMinimum") return unless(number() > argument.get<double>());
    if (name == "exclusiveMaximum") return unless(number() < argument.get<double>());
    if (name == "multipleOf") return unless(is_multiple(value, argument));
  }
  if (value.is_array() && !array_holds(own, name, argument, value, at, seen)) return false;
  if (value.is_object() && !object_holds(own, name, argument, value, at, seen)) return false;
  return combination_holds(own, name, argument, value, at, seen);
}

bool SchemaCheck::combination_holds(const Json& own, const std::string& name, const Json& argument,
                                    const Json& value, const std::string& at, Seen& seen) {
  if (name == "$ref") return valid(document_.at(argument.get<std::string>()), value, at, seen);
  if (name == "allOf") {
    return std::all_of(argument.begin(), argument.end(),
                       [&](const Json& part) { return valid(part, value, at, seen); });
  }
  if (name == "anyOf" || name == "oneOf") {
    std::size_t n = 0;
    for (const Json& part : argument) n += valid(part, value, at, seen) ? 1 : 0;
    const bool holds = name == "anyOf" ? n > 0 : n == 1;
    if (holds) first_.reset();
    return holds || fails(at, name);
  }
  if (name == "not") {
    Seen unused;
    const bool refused = !valid(argument, value, at, unused);
    first_.reset();
    return refused || fails(at, name);
  }
  if (name == "if") {
    const bool yes = valid(argument, value, at, seen);
    first_.reset();
    const char* then = yes ? "then" : "else";
    return !own.contains(then) || valid(own[then], value, at, seen);
  }
  return true;
}

bool SchemaCheck::array_holds(const Json& own, const std::string& name, const Json& argument,
                              const Json& value, const std::string& at, Seen& seen) {
  const auto unless = [&](bool holds) { return holds || fails(at, name); };
  const auto item_holds = [&](const Json& schema, std::size_t i) {
    Seen unused;
    seen.items.insert(i);
    return valid(schema, value[i], at + "/" + std::to_string(i), unused);
  };
  if (name == "minItems")
    return unless(static_cast<double>(value.size()) >= argument.get<double>());
  if (name == "maxItems")
    return unless(static_cast<double>(value.size()) <= argument.get<double>());
  if (name == "uniqueItems") return unless(argument != Json(true) || all_different(value));
  if (name == "prefixItems") {
    for (std::size_t i = 0; i < std::min(argument.size(), value.size()); ++i) {
      if (!item_holds(argument[i], i)) return false;
    }
  }
  if (name == "items") {
    const std::size_t n_fixed = own.contains("prefixItems") ? own["prefixItems"].size() : 0;
    for (std::size_t i = n_fixed; i < value.size(); ++i) {
      if (!item_holds(argument, i)) return false;
    }
  }
  if (name == "contains") {
    double n = 0;
    for (std::size_t i = 0; i < value.size(); ++i) {
      Seen unused;
      if (!valid(argument, value[i], at, unused)) continue;
      ++n;
      seen.items.insert(i);
    }
    first_.reset();
    const double least = own.contains("minContains") ? own["minContains"].get<double>() : 1.0;
    if (n < least) return fails(at, name);
    if (own.contains("maxContains") && n > own["maxContains"].get<double>())
      return fails(at, "maxContains");
  }
  return true;
}

bool SchemaCheck::object_holds(const Json& own, const std::string& name, const Json& argument,
                               const Json& value, const std::string& at, Seen& seen) {
  const auto unless = [&](bool holds) { return holds || fails(at, name); };
  const auto member_holds = [&](const Json& schema, const std::string& member) {
    Seen unused;
    seen.names.insert(member);
    return valid(schema, value[member], at + "/" + pointer_step(member), unused);
  };
  if (name == "minProperties") {
    return unless(static_cast<double>(value.size()) >= argument.get<double>());
  }
  if (name == "maxProperties") {
    return unless(static_cast<double>(value.size()) <= argument.get<double>());
  }
  if (name == "required") {
    return unless(std::all_of(argument.begin(), argument.end(), [&](const Json& member) {
      return value.contains(member.get<std::string>());
    }));
  }
  if (name == "properties") {
    for (const auto& [member, schema] : argument.items()) {
      if (value.contains(member) && !member_holds(schema, member)) return false;
    }
  }
  if (name == "dependentRequired") {
    for (const auto& [member, needed] : argument.items()) {
      const bool holds = std::all_of(needed.begin(), needed.end(), [&](const Json& other) {
        return value.contains(other.get<std::string>());
      });
      if (value.contains(member) && !holds) return fails(at, name);
    }
  }
  if (name == "dependentSchemas") {
    for (const auto& [member, schema] : argument.items()) {
      if (value.contains(member) && !valid(schema, value, at, seen)) return false;
    }
  }
  if (name != "patternProperties" && name != "additionalProperties" && name != "propertyNames")
    return true;
  const Json none = Json::object();
  const auto part = [&](const char* keyword) -> const Json& {
    return own.contains(keyword) ? own[keyword] : none;
  };
  for (const auto& [member, unused] : value.items()) {
    if (name == "propertyNames") {
      Seen ignored;
      if (!valid(argument, Json(member), at + "/" + pointer_step(member), ignored))
        return fails(at, name);
      continue;
    }
    bool matched = part("properties").contains(member);
    for (const auto& [pattern, schema] : part("patternProperties").items()) {
      if (!matches(pattern, member, false)) continue;
      matched = true;
      if (name == "patternProperties" && !member_holds(schema, member)) return false;
    }
    if (name == "additionalProperties" && !matched && !member_holds(argument, member)) return false;
  }
  return true;
}

std::optional<std::string> find_schema_violation(const Json& schema, const Json& value) {
  const SchemaDocument document(schema, "schema");
  return SchemaCheck(document).violation(document.root(), value);
}

}  // namespace moeflux
