#include "text/replies/reply_gbnf.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "text/replies/reply_json.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxParts = 6, kMaxDemanded = 4;

std::u32string code_points(std::string_view text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    out += step.code_point;
    at += step.length;
  }
  return out;
}

}  // namespace

std::string gbnf_literal(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

// The rules are the states of the automaton that looks for `end`: NAME-k has seen its first k
// characters.
std::string gbnf_rules_without(const std::string& name, std::string_view end) {
  const std::u32string pattern = code_points(end);
  const auto next = [&](std::size_t seen, char32_t c) {
    std::u32string text = pattern.substr(0, seen) + c;
    while (!text.empty() && !pattern.starts_with(text)) text.erase(0, 1);
    return text.size();
  };
  std::u32string letters = pattern;
  std::sort(letters.begin(), letters.end());
  letters.erase(std::unique(letters.begin(), letters.end()), letters.end());

  std::string rules;
  for (std::size_t seen = 0; seen < pattern.size(); ++seen) {
    std::string others, steps;
    for (const char32_t c : letters) {
      const std::size_t then = next(seen, c);
      if (then == 0) continue;
      const std::string escaped = fmt::format("\\U{:08x}", static_cast<std::uint32_t>(c));
      others += escaped;
      if (then < pattern.size()) steps += fmt::format(" | [{}] {}-{}", escaped, name, then);
    }
    rules += fmt::format("{}-{} ::= | [^{}] {}-0{}\n", name, seen, others, name, steps);
  }
  return rules;
}

// A rule is needed for each set of parts that may still come. So of more than kMaxParts only the
// demanded ones are counted, and of more than kMaxDemanded not even they.
std::string gbnf_any_order(const std::string& name, const std::vector<std::string>& demanded,
                           const std::vector<std::string>& others, std::string& rules) {
  const bool counts_all = demanded.size() + others.size() <= kMaxParts;
  const bool counts_demanded = counts_all || demanded.size() <= kMaxDemanded;
  std::vector<std::string> counted, free;
  for (const std::string& part : demanded) (counts_demanded ? counted : free).push_back(part);
  for (const std::string& part : others) (counts_all ? counted : free).push_back(part);

  const auto rule_of = [&](std::size_t left) { return fmt::format("{}{}", name, left); };
  const std::size_t all = (std::size_t{1} << counted.size()) - 1;
  const std::size_t needed =
      counts_demanded ? (std::size_t{1} << demanded.size()) - 1 : std::size_t{0};
  for (std::size_t left = 0; left <= all; ++left) {  // the parts that may still come, as bits
    std::vector<std::string> ways;
    if ((left & needed) == 0) ways.emplace_back("\"\"");
    for (std::size_t i = 0; i < counted.size(); ++i) {
      const std::size_t bit = std::size_t{1} << i;
      if ((left & bit) != 0) ways.push_back(counted[i] + " " + rule_of(left & ~bit));
    }
    for (const std::string& part : free) ways.push_back(part + " " + rule_of(left));
    rules += fmt::format("{} ::= {}\n", rule_of(left), fmt::join(ways, "|"));
  }
  return rule_of(all);
}

std::string gbnf_arguments(const std::string& rule, const Json& function, const std::string& none,
                           bool use_schemas, std::map<std::string, Json>& schemas) {
  if (!function.contains("parameters")) return none;
  Json schema = parameters_schema(&function);
  const bool allows_object = (allowed_types(schema, schema) & kJsonObject) != 0;
  if (!use_schemas || !allows_object) schema = Json{{"type", "object"}};
  if (!schema.contains("type")) schema["type"] = "object";
  schemas[rule] = std::move(schema);
  return rule;
}

}  // namespace moeflux
