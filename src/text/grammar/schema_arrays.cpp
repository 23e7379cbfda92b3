// Arrays of a schema.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/grammar/schema_compiler.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxFixedItems = 500;
constexpr std::size_t kMaxUnique = 8;          // values, all of whose subsets are states
constexpr std::size_t kMaxArrayStates = 4000;  // items times those that are looked for

}  // namespace

// Each item is what all layers say of its place.
ExprId SchemaCompiler::array(const Json& flat, const SchemaPlace& place) {
  Counts n = counts(flat, "minItems", "maxItems", place);
  const std::vector<const Json*> all = array_layers(flat);
  std::size_t n_fixed = 0;
  bool has_rest = false;
  for (const Json* layer : all) {
    if (layer->contains("prefixItems")) n_fixed = std::max(n_fixed, (*layer)["prefixItems"].size());
    has_rest = has_rest || layer->contains("items");
  }
  if (n_fixed > kMaxFixedItems) {
    fail(Errc::LimitExceeded, "{}: more than {} items", (place / "prefixItems").text(),
         kMaxFixedItems);
  }
  std::vector<Json> fixed(n_fixed, Json(true));
  Json others = true;
  for (const Json* layer : all) {
    const Json list = layer->value("prefixItems", Json::array());
    const Json items = layer->value("items", Json(true));
    for (std::size_t i = 0; i < n_fixed; ++i) {
      fixed[i] = all_of(fixed[i], i < list.size() ? list[i] : items);
    }
    others = all_of(others, items);
  }
  // Nobody speaks of what follows the first items: then it does not come, unless it must.
  if (!has_rest && n_fixed > 0 && n.min <= n_fixed && !options_.as_standard) others = false;
  const auto end = std::find(fixed.begin(), fixed.end(), Json(false));
  if (end != fixed.end()) {
    fixed.erase(end, fixed.end());
    others = false;
  }
  std::optional<Json> rest;
  if (others != Json(false)) rest = others;
  if (!rest) n.max = std::min(n.max, static_cast<std::uint32_t>(fixed.size()));
  if (n.min > n.max) return grammar_.nothing();

  const std::vector<const Json*> contained = layers(flat, {"contains"});
  for (std::size_t i = 0; i < contained.size(); ++i) {
    if (i == 0) {
      if (auto way = containing_array(fixed, rest, n, *contained[0], place)) {
        if (contained.size() > 1) branches_.note(place / "contains");
        if (flat.value("uniqueItems", false)) branches_.note(place / "uniqueItems");
        return *way;
      }
    }
    branches_.note(place / "contains");
  }
  if (flat.value("uniqueItems", false) && n.max > 1) {
    if (const auto values = rest && fixed.empty() ? listed_values(*rest, place) : std::nullopt) {
      if (auto way = unique_items(*values, n)) return *way;
    }
    branches_.note(place / "uniqueItems");
  }
  std::vector<ExprId> items;
  for (std::size_t i = 0; i < fixed.size() && i < n.max; ++i) {
    items.push_back(visit(fixed[i], place / "prefixItems" / std::to_string(i)));
  }
  std::optional<ExprId> more;
  if (rest && n.max > items.size()) more = visit(*rest, place / "items");
  return plain_array(items, more, n);
}

ExprId SchemaCompiler::plain_array(const std::vector<ExprId>& fixed, std::optional<ExprId> rest,
                                   Counts n) {
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
    const std::uint32_t least = n.min > done ? n.min - done : 0;
    tail = grammar_.repeat(grammar_.sequence({pieces_.comma(), *rest}), least, more);
  }
  for (std::size_t i = fixed.size(); i-- > at;) {
    const ExprId next = grammar_.sequence({pieces_.comma(), fixed[i], tail});
    tail = grammar_.rule(grammar_.declare("items", i < n.min ? next : grammar_.optional(next)));
  }
  return tail;
}

std::optional<std::vector<Json>> SchemaCompiler::listed_values(const Json& schema,
                                                               const SchemaPlace& place) {
  std::vector<Json> out;
  for (const SchemaBranch& branch : branches_.of(schema, place)) {
    Json values = Json::array();
    if (branch.flat.contains("enum")) {
      values = branch.flat["enum"];
    } else if (branch.flat.value("type", Json()) == Json("boolean")) {
      values = Json::array({false, true});
    } else if (branch.flat.value("type", Json()) == Json("null")) {
      values = Json::array({nullptr});
    } else {
      return std::nullopt;
    }
    for (const Json& value : values) {
      const bool known = std::any_of(out.begin(), out.end(),
                                     [&](const Json& v) { return equal_values(v, value); });
      if (!known && accepts(branch.flat, value)) out.push_back(value);
    }
  }
  return out;
}

// Each value once at most: which of them were written is the state.
std::optional<ExprId> SchemaCompiler::unique_items(const std::vector<Json>& values, Counts n) {
  if (values.size() > kMaxUnique) return std::nullopt;
  const std::size_t n_sets = std::size_t{1} << values.size();
  std::vector<RuleId> rules;
  for (std::size_t set = 0; set < n_sets; ++set) rules.push_back(grammar_.declare("unique"));
  for (std::size_t set = 0; set < n_sets; ++set) {
    const auto n_written = static_cast<std::uint32_t>(__builtin_popcountll(set));
    std::vector<ExprId> ways;
    if (n_written >= n.min) {
      ways.push_back(set == 0 ? grammar_.literal("]")
                              : grammar_.sequence({pieces_.blank(), grammar_.literal("]")}));
    }
    for (std::size_t i = 0; i < values.size() && n_written < n.max; ++i) {
      const std::size_t bit = std::size_t{1} << i;
      if ((set & bit) != 0) continue;
      ways.push_back(
          grammar_.sequence({set == 0 ? pieces_.blank() : pieces_.comma(), pieces_.value(values[i]),
                             grammar_.rule(rules[set | bit])}));
    }
    grammar_.define(rules[set],
                    ways.empty() ? grammar_.nothing() : grammar_.choice(std::move(ways)));
  }
  return grammar_.sequence({grammar_.literal("["), grammar_.rule(rules[0])});
}

// States are the number of items and of those that are what is looked for.
std::optional<ExprId> SchemaCompiler::containing_array(const std::vector<Json>& fixed,
                                                       const std::optional<Json>& rest, Counts n,
                                                       const Json& contains,
                                                       const SchemaPlace& place) {
  const Json& wanted = contains["contains"];
  const Counts found = counts(contains, "minContains", "maxContains", place);
  const std::uint32_t least = contains.contains("minContains") ? found.min : 1;
  const bool limited = found.max != Grammar::kUnbounded;
  if (least == 0 && !limited)
    return plain_array(
        [&] {
          std::vector<ExprId> items;
          for (std::size_t i = 0; i < fixed.size() && i < n.max; ++i)
            items.push_back(visit(fixed[i], place));
          return items;
        }(),
        rest && n.max > fixed.size() ? std::optional(visit(*rest, place / "items")) : std::nullopt,
        n);
  if (limited && found.max < least) return grammar_.nothing();
  const auto other = limited ? branches_.negation(wanted) : std::optional<Json>(true);
  if (!other) return std::nullopt;
  const std::size_t top_found = limited ? found.max : least;
  const std::size_t top_items =
      std::max<std::size_t>({fixed.size(), n.min, n.max == Grammar::kUnbounded ? 1 : n.max, 1});
  if (top_items * (top_found + 1) > kMaxArrayStates) return std::nullopt;

  const std::size_t width = top_found + 1;
  std::vector<RuleId> rules;
  for (std::size_t i = 0; i < (top_items + 1) * width; ++i)
    rules.push_back(grammar_.declare("items"));
  for (std::size_t i = 0; i <= top_items; ++i) {
    for (std::size_t c = 0; c <= top_found; ++c) {
      std::vector<ExprId> ways;
      if (i >= n.min && c >= least) {
        ways.push_back(i == 0 ? grammar_.literal("]")
                              : grammar_.sequence({pieces_.blank(), grammar_.literal("]")}));
      }
      const bool may_follow = i < n.max && (i < fixed.size() || rest);
      const ExprId before = i == 0 ? pieces_.blank() : pieces_.comma();
      const std::size_t next = std::min(i + 1, top_items);
      const auto add = [&](const Json& what, std::size_t count) {
        const Json schema = all_of(i < fixed.size() ? fixed[i] : *rest, what);
        if (schema == Json(false)) return;
        ways.push_back(grammar_.sequence({before, visit(schema, place / "contains"),
                                          grammar_.rule(rules[next * width + count])}));
      };
      if (may_follow) {
        if (c < top_found || !limited) add(wanted, std::min(c + 1, top_found));
        add(*other, c);
      }
      grammar_.define(rules[i * width + c],
                      ways.empty() ? grammar_.nothing() : grammar_.choice(std::move(ways)));
    }
  }
  return grammar_.sequence({grammar_.literal("["), grammar_.rule(rules[0])});
}

}  // namespace moeflux
