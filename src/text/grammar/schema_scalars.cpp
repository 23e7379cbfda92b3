// Strings and numbers of a schema.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/grammar/schema_check.h"
#include "text/grammar/schema_compiler.h"

namespace moeflux {
namespace {

// Formats of numbers, and those that say what a text is for but not how it looks.
bool says_nothing(const std::string& format) {
  static const std::set<std::string> kWords = {
      "int32",       "int64",     "uint32",   "uint64",    "int8",      "uint8",    "int16",
      "uint16",      "float",     "double",   "binary",    "byte",      "password", "json-string",
      "starts_with", "ends_with", "includes", "uppercase", "lowercase", "char",     "string"};
  return kWords.contains(format);
}

struct TextParts {
  std::vector<std::string> patterns, formats, refused_patterns;
  std::vector<Json> refused_values;
};

TextParts text_parts(const Json& flat) {
  TextParts out;
  const auto take = [&](const Json& part) {
    if (part.contains("pattern")) out.patterns.push_back(part["pattern"].get<std::string>());
    if (part.contains("format")) out.formats.push_back(part["format"].get<std::string>());
    if (!part.contains("not")) return;
    const Json& refused = part["not"];
    if (refused.contains("pattern")) {
      out.refused_patterns.push_back(refused["pattern"].get<std::string>());
    }
    if (refused.contains("enum")) {
      for (const Json& value : refused["enum"]) out.refused_values.push_back(value);
    }
  };
  take(flat);
  if (flat.contains("allOf")) {
    for (const Json& part : flat["allOf"]) take(part);
  }
  return out;
}

}  // namespace

ExprId SchemaCompiler::string(const Json& flat, const SchemaPlace& place) {
  const Counts length = counts(flat, "minLength", "maxLength", place);
  if (length.min > length.max) return grammar_.nothing();
  const TextParts parts = text_parts(flat);
  const bool plain = parts.refused_patterns.empty() && parts.refused_values.empty() &&
                     parts.patterns.size() + parts.formats.size() <= 1;
  if (plain) {
    std::string pattern = parts.patterns.empty() ? "" : parts.patterns[0];
    bool has_pattern = !parts.patterns.empty();
    if (!parts.formats.empty()) {
      if (const auto known = format_pattern(parts.formats[0])) {
        pattern = *known;
        has_pattern = true;
      } else if (!says_nothing(parts.formats[0])) {
        branches_.note(place / "format");
      }
    }
    if (!has_pattern) return pieces_.string(length.min, length.max);
    try {
      return add_pattern(grammar_, pieces_, pattern, {length.min, length.max});
    } catch (const Error&) {  // in parts, then
    }
  }
  const LanguageId all = texts(flat, place);
  try {
    return add_texts(grammar_, pieces_, branches_.languages(), all, "\"");
  } catch (const Error&) {
  }
  // Too much together. One of them, or the length alone.
  for (const std::string& pattern : parts.patterns) {
    try {
      const ExprId one = add_pattern(grammar_, pieces_, pattern, {0, Grammar::kUnbounded});
      for (const char* keyword : {"minLength", "maxLength", "format"}) {
        if (flat.contains(keyword)) branches_.note(place / keyword);
      }
      if (parts.patterns.size() > 1) branches_.note(place / "pattern");
      return one;
    } catch (const Error&) {
    }
  }
  if (!parts.patterns.empty()) branches_.note(place / "pattern");
  for (const std::string& format : parts.formats) {
    try {
      if (const auto known = format_pattern(format))
        return add_pattern(grammar_, pieces_, *known, {length.min, length.max});
    } catch (const Error&) {
    }
    branches_.note(place / "format");
  }
  return pieces_.string(length.min, length.max);
}

LanguageId SchemaCompiler::texts(const Json& flat, const SchemaPlace& place) {
  TextLanguages& l = branches_.languages();
  const Counts length = counts(flat, "minLength", "maxLength", place);
  if (length.min > length.max) return l.nothing();
  const TextParts parts = text_parts(flat);
  std::vector<LanguageId> all = {l.repeat(l.characters(CodePoints::all()), length.min, length.max)};
  for (const std::string& pattern : parts.patterns) {
    if (const auto known = branches_.language(pattern)) {
      all.push_back(*known);
    } else {
      branches_.note(place / "pattern");
    }
  }
  for (const std::string& pattern : parts.refused_patterns) {
    if (const auto known = branches_.language(pattern)) {
      all.push_back(l.complement(*known));
    } else {
      branches_.note(place / "not");
    }
  }
  std::vector<LanguageId> refused;
  for (const Json& value : parts.refused_values) {
    if (value.is_string()) refused.push_back(l.text(value.get_ref<const std::string&>()));
  }
  if (!refused.empty()) all.push_back(l.complement(l.either(std::move(refused))));
  for (const std::string& format : parts.formats) {
    const auto known = format_pattern(format);
    const auto language = known ? branches_.language(std::string(*known)) : std::nullopt;
    if (!language) {
      if (!says_nothing(format) && parts.patterns.empty()) branches_.note(place / "format");
      continue;
    }
    // Ours is narrower than the format: what pattern and length leave of it may be nothing.
    std::vector<LanguageId> with = all;
    with.push_back(*language);
    const LanguageId both = l.both(with);
    bool any = true;
    try {
      any = l.automaton(both, kMaxTextStates).size() > 0;
    } catch (const Error&) {
      any = false;
    }
    if (any) {
      all.push_back(*language);
    } else if (parts.patterns.empty()) {
      branches_.note(place / "format");
    }
  }
  return l.both(std::move(all));
}

LanguageId SchemaCompiler::texts_of_names(const Json& schema, const SchemaPlace& place) {
  TextLanguages& l = branches_.languages();
  std::vector<LanguageId> ways;
  for (const SchemaBranch& branch : branches_.of(schema, place)) {
    if (branch.flat.contains("type") && !types_of(branch.flat).contains(JsonType::String)) continue;
    if (branch.flat.contains("enum")) {
      for (const Json& value : branch.flat["enum"]) {
        if (value.is_string() && accepts(branch.flat, value))
          ways.push_back(l.text(value.get_ref<const std::string&>()));
      }
    } else {
      ways.push_back(texts(branch.flat, place));
    }
  }
  return l.either(std::move(ways));
}

std::optional<std::vector<std::string>> SchemaCompiler::listed_names(const Json& schema,
                                                                     const SchemaPlace& place) {
  std::vector<std::string> out;
  for (const SchemaBranch& branch : branches_.of(schema, place)) {
    if (branch.flat.contains("type") && !types_of(branch.flat).contains(JsonType::String)) continue;
    if (!branch.flat.contains("enum")) return std::nullopt;
    for (const Json& value : branch.flat["enum"]) {
      if (value.is_string() && accepts(branch.flat, value)) out.push_back(value.get<std::string>());
    }
  }
  return out;
}

ExprId SchemaCompiler::number(bool integer, const Json& flat, const SchemaPlace& place) {
  DecimalRange range = {.integer = integer};
  bool bounded = false;
  const auto take = [&](const char* name, std::optional<DecimalBound>& bound, bool exclusive,
                        bool larger_wins) {
    if (!flat.contains(name)) return;
    const Json& value = flat[name];
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
  std::vector<Json> steps, refused;
  const auto take_steps = [&](const Json& part) {
    if (part.contains("multipleOf")) steps.push_back(part["multipleOf"]);
    if (part.contains("not") && part["not"].contains("multipleOf"))
      refused.push_back(part["not"]["multipleOf"]);
  };
  take_steps(flat);
  if (flat.contains("allOf")) {
    for (const Json& part : flat["allOf"]) take_steps(part);
  }
  // Whole numbers are multiples of 1: less work than counting remainders.
  const auto whole = std::remove_if(steps.begin(), steps.end(),
                                    [](const Json& step) { return step.get<double>() == 1.0; });
  if (whole != steps.end()) {
    range.integer = bounded = true;
    steps.erase(whole, steps.end());
  }
  try {
    if (!steps.empty() || !refused.empty()) {
      if (const auto way = add_multiples(grammar_, range, steps, refused)) return *way;
      branches_.note(place / (steps.empty() ? "not" : "multipleOf"));
    }
    if (bounded) return add_decimal_range(grammar_, range);
  } catch (const Error& error) {  // bounds that no text of ours reaches
    if (error.code() == Errc::LimitExceeded) throw;
    branches_.note(place / (range.low ? "minimum" : "maximum"));
  }
  return range.integer ? pieces_.integer() : pieces_.number();
}

}  // namespace moeflux
