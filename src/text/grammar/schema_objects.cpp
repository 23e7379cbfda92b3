// Objects of a schema: known members in the order of the schema, others after them.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/grammar/schema_compiler.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxProperties = 2000;
constexpr std::size_t kMaxPatterns = 6;      // all of whose combinations are looked at
constexpr std::size_t kMaxCounted = 20'000;  // members times how many were written

bool holds_name(const Json& flat, const std::string& name) {
  if (!flat.contains("required")) return false;
  const Json& required = flat["required"];
  return std::find(required.begin(), required.end(), Json(name)) != required.end();
}

}  // namespace

std::vector<std::string> SchemaCompiler::member_names(const Json& flat) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) names.push_back(name);
  };
  for (const Json* layer : object_layers(flat)) {
    if (!layer->contains("properties")) continue;
    for (const auto& [name, unused] : (*layer)["properties"].items()) add(name);
  }
  if (flat.contains("required")) {
    for (const Json& name : flat["required"]) add(name.get<std::string>());
  }
  return names;
}

ExprId SchemaCompiler::object(const Json& flat, const SchemaPlace& place) {
  const Counts n = counts(flat, "minProperties", "maxProperties", place);
  std::optional<Json> name_schema;
  for (const Json* layer : layers(flat, {"propertyNames"})) {
    const Json& one = (*layer)["propertyNames"];
    name_schema = name_schema ? all_of(*name_schema, one) : one;
  }
  std::vector<std::string> names = member_names(flat);
  const std::size_t n_named = names.size();
  bool all_listed = false;  // propertyNames lists them
  if (name_schema) {
    if (const auto listed = listed_names(*name_schema, place / "propertyNames")) {
      all_listed = true;
      for (const std::string& name : *listed) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
  }
  if (names.size() > kMaxProperties) {
    fail(Errc::LimitExceeded, "{}: more than {} properties", place.text(), kMaxProperties);
  }
  std::optional<LanguageId> allowed_names;
  if (name_schema) allowed_names = texts_of_names(*name_schema, place / "propertyNames");

  Members all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    const bool required = holds_name(flat, name);
    bool allowed = true;
    if (allowed_names) {
      try {
        allowed = branches_.languages().contains(*allowed_names, name);
      } catch (const Error&) {
        branches_.note(place / "propertyNames");
      }
    }
    const Json value = branches_.member(flat, name).value_or(Json(true));
    if (!allowed || value == Json(false)) {
      if (!required) continue;
      if (place.path.empty() && !options_.as_standard) {
        (place / "required").bad(fmt::format("\"{}\" is required but not allowed", name));
      }
      return grammar_.nothing();
    }
    const SchemaPlace there =
        i < n_named ? place / "properties" / name : place / "additionalProperties";
    all.known.push_back({name, visit(value, there), required});
  }
  if (!all_listed) all.other = other_members(flat, names, name_schema, place);
  if (n.min > n.max) return grammar_.nothing();
  return members(all, n, place);
}

// A member the schema does not name. Without additionalProperties there is one only in objects of
// which nothing is known.
std::optional<ExprId> SchemaCompiler::other_members(const Json& flat,
                                                    const std::vector<std::string>& names,
                                                    const std::optional<Json>& name_schema,
                                                    const SchemaPlace& place) {
  const std::vector<const Json*> all = object_layers(flat);
  std::vector<std::string> patterns;
  bool open = names.empty(), has_others = false;
  for (const Json* layer : all) {
    if (layer->contains("properties") && !(*layer)["properties"].empty()) open = false;
    has_others = has_others || layer->contains("additionalProperties");
    if (!layer->contains("patternProperties")) continue;
    for (const auto& [pattern, unused] : (*layer)["patternProperties"].items()) {
      if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end())
        patterns.push_back(pattern);
    }
  }
  if (!patterns.empty()) open = false;
  for (const Json* layer : all) {
    if (layer->contains("properties") && names.empty() && (*layer)["properties"].empty() &&
        !has_others && patterns.empty()) {
      open = false;
    }
  }
  TextLanguages& l = branches_.languages();
  std::vector<LanguageId> languages;
  std::erase_if(patterns, [&](const std::string& pattern) {
    const auto known = branches_.language(pattern);
    const bool drop = !known || languages.size() == kMaxPatterns;
    if (drop) {
      branches_.note(place / "patternProperties" / pattern);
    } else {
      languages.push_back(*known);
    }
    return drop;
  });
  const SchemaPlace there = place / "additionalProperties";
  if (patterns.empty() && !name_schema) {
    Json value = true;
    for (const Json* layer : all) {
      value = all_of(value, layer->value("additionalProperties", Json(true)));
    }
    if (!has_others && !open && !options_.as_standard) return std::nullopt;
    if (value == Json(false)) return std::nullopt;
    return grammar_.sequence({pieces_.other_key(names), visit(value, there)});
  }

  std::vector<LanguageId> known;
  for (const std::string& name : names) known.push_back(l.text(name));
  LanguageId base = l.complement(l.either(std::move(known)));
  if (name_schema) {
    base = l.both({base, texts_of_names(*name_schema, place / "propertyNames")});
  }
  // By which patterns match a name, what the layers say of its value.
  std::map<std::string, std::pair<Json, std::vector<LanguageId>>> by_value;
  for (std::size_t set = 0; set < (std::size_t{1} << patterns.size()); ++set) {
    std::vector<LanguageId> parts = {base};
    const auto in_set = [&](const std::string& pattern) {
      const auto at = std::find(patterns.begin(), patterns.end(), pattern);
      return at != patterns.end() && ((set >> (at - patterns.begin())) & 1) != 0;
    };
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      parts.push_back(((set >> i) & 1) != 0 ? languages[i] : l.complement(languages[i]));
    }
    Json value = true;
    for (const Json* layer : all) {
      bool matched = false;
      if (layer->contains("patternProperties")) {
        for (const auto& [pattern, schema] : (*layer)["patternProperties"].items()) {
          if (!in_set(pattern)) continue;
          matched = true;
          value = all_of(value, schema);
        }
      }
      if (!matched) value = all_of(value, layer->value("additionalProperties", Json(true)));
    }
    const bool named = set != 0 || has_others || open || options_.as_standard;
    if (value == Json(false) || !named) continue;
    auto& [schema, texts] = by_value[dump_json(value)];
    schema = value;
    texts.push_back(l.both(std::move(parts)));
  }
  std::vector<ExprId> ways;
  for (auto& [unused, entry] : by_value) {
    auto& [schema, texts] = entry;
    std::optional<ExprId> key;
    try {
      key = add_texts(grammar_, pieces_, l, l.either(std::move(texts)), "\":");
    } catch (const Error&) {
      branches_.note(place / (patterns.empty() ? "propertyNames" : "patternProperties"));
      continue;
    }
    ways.push_back(grammar_.sequence({*key, pieces_.space(), visit(schema, there)}));
  }
  if (ways.empty()) return std::nullopt;
  return grammar_.choice(std::move(ways));
}

// rules[i][c]: what follows, up to the brace, when c members are written and those before i are
// decided. Counts past the one that matters are one state.
ExprId SchemaCompiler::members(const Members& all, Counts n, const SchemaPlace& place) {
  Grammar& g = grammar_;
  const std::vector<Member>& known = all.known;
  const auto n_required = static_cast<std::uint32_t>(
      std::count_if(known.begin(), known.end(), [](const Member& m) { return m.required; }));
  if (known.empty() && all.other) {
    if (n.min > 1) branches_.note(place / "minProperties");  // a name may come twice
    return pieces_.list("{", *all.other, n.min, n.max, "}");
  }
  if (n.max < n_required || (!all.other && n.min > known.size())) return g.nothing();
  if (n.min <= n_required) n.min = 0;
  if (!all.other && n.max >= known.size()) n.max = Grammar::kUnbounded;
  if (all.other && n.min > known.size() + 1) branches_.note(place / "minProperties");
  std::size_t top = n.max != Grammar::kUnbounded ? n.max : std::max<std::uint32_t>(n.min, 1);
  if ((known.size() + 1) * (top + 1) > kMaxCounted) {
    branches_.note(place / (n.min > 0 ? "minProperties" : "maxProperties"));
    n = {0, Grammar::kUnbounded};
    top = 1;
  }
  const ExprId end = g.literal("}");
  const ExprId spaced_end = g.sequence({pieces_.blank(), end});
  std::vector<ExprId> after;  // by count
  for (std::size_t c = 0; c <= top; ++c) {
    std::vector<ExprId> ways;
    const auto least = static_cast<std::uint32_t>(n.min > c ? n.min - c : 0);
    if (least == 0) ways.push_back(c == 0 ? end : spaced_end);
    const auto most = n.max == Grammar::kUnbounded
                          ? n.max
                          : static_cast<std::uint32_t>(n.max > c ? n.max - c : 0);
    if (all.other && most > 0) {
      const ExprId more = g.sequence({pieces_.comma(), *all.other});
      if (c > 0) {
        ways = {g.sequence({g.repeat(more, least, most), spaced_end})};
      } else {
        const ExprId others = g.repeat(more, least > 0 ? least - 1 : 0,
                                       most == Grammar::kUnbounded ? most : most - 1);
        ways.push_back(g.sequence({pieces_.blank(), *all.other, others, spaced_end}));
      }
    }
    after.push_back(ways.empty() ? g.nothing() : g.choice(std::move(ways)));
  }
  for (std::size_t i = known.size(); i-- > 0;) {
    const ExprId pair = g.sequence({pieces_.key(known[i].name), known[i].value});
    std::vector<ExprId> here;
    for (std::size_t c = 0; c <= top; ++c) {
      std::vector<ExprId> ways;
      const bool full = n.max != Grammar::kUnbounded && c == top;
      if (!full && c <= i) {
        ways.push_back(g.sequence(
            {c == 0 ? pieces_.blank() : pieces_.comma(), pair, after[std::min(c + 1, top)]}));
      }
      if (!known[i].required) ways.push_back(after[c]);
      const ExprId next = ways.empty() ? g.nothing() : g.choice(std::move(ways));
      here.push_back(g.rule(g.declare("members", next)));
    }
    after = std::move(here);
  }
  return g.sequence({g.literal("{"), after[0]});
}

}  // namespace moeflux
