// Schemas in Gemma's notation. What a schema says by anything but types, properties, items and
// lists of texts is left to the model.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "text/replies/reply_gbnf.h"
#include "text/replies/reply_gemma.h"
#include "text/replies/reply_json.h"

namespace moeflux {
namespace {

constexpr int kMaxSchemaDepth = 16;  // of what a schema says; below it, any value

constexpr std::string_view kAnyValue = R"(any ::= string | number | boolean | "null" | list | object
number ::= "-"? [0-9]{1,15} ("." [0-9]{1,15})?
integer ::= "-"? [0-9]{1,18}
boolean ::= "true" | "false"
list ::= "[" (any ("," any)*)? "]"
object ::= "{" (key ":" any ("," key ":" any)*)? "}"
key ::= [a-zA-Z0-9_.-]{1,64}
)";

class GemmaGrammarWriter {
 public:
  GemmaGrammarWriter(const ToolGrammarOptions& options)
      : options_(options), is_auto_(options.choice.mode == ToolChoice::Mode::Auto) {}

  ToolGrammar write(const Json& tools) {
    std::string calls;
    for (std::size_t i = 0; i < tools.size(); ++i) {
      const Json& function = tool_function(tools[i]);
      const std::string rule = fmt::format("call-{}", i);
      const Json& schema = parameters_schema(&function);
      const std::string arguments = !function.contains("parameters") ? "\"{}\""
                                    : options_.use_schemas ? object(rule + "-a", schema, schema, 0)
                                                           : "object";
      rules_ +=
          fmt::format("{} ::= {} {}\n", rule, gbnf_literal(function.value("name", "")), arguments);
      calls += (i == 0 ? "" : " | ") + rule;
    }
    const std::string call =
        fmt::format("{} ({}) {}", gbnf_literal(kGemmaCallName), calls, gbnf_literal(kGemmaCallEnd));
    ToolGrammar result;
    if (is_auto_) {
      rules_ += fmt::format("root ::= {}\n", call);
      result.starts_after = kGemmaCallBegin;
      result.repeats = options_.parallel;
    } else {
      rules_ += fmt::format("block ::= {} {}\nroot ::= block{}\n", gbnf_literal(kGemmaCallBegin),
                            call, options_.parallel ? "+" : "");
    }
    result.gbnf = rules_ + std::string(kAnyValue) +
                  fmt::format("string ::= {0} text-0 {0}\n", gbnf_literal(kGemmaQuote)) +
                  gbnf_rules_without("text", kGemmaQuote);
    return result;
  }

 private:
  static std::string text(const std::string& value) {
    return gbnf_literal(fmt::format("{0}{1}{0}", kGemmaQuote, value));
  }

  // The texts a schema lists; "" when it lists none, or other values too.
  static std::string listed(const Json& schema) {
    if (!schema.is_object() || !schema.contains("enum") || !schema["enum"].is_array()) return {};
    std::string ways;
    for (const Json& value : schema["enum"]) {
      if (!value.is_string()) return {};
      ways += (ways.empty() ? "" : " | ") + text(value.get<std::string>());
    }
    return ways.empty() ? ways : "(" + ways + ")";
  }

  std::string value(const std::string& rule, const Json& schema, const Json& root, int depth) {
    const unsigned types = allowed_types(schema, root);
    if (types == kJsonAny || depth > kMaxSchemaDepth) return "any";
    if (const std::string texts = listed(schema); !texts.empty()) return texts;
    std::string ways;
    const auto add = [&](unsigned type, const std::string& way) {
      if ((types & type) != 0) ways += (ways.empty() ? "" : " | ") + way;
    };
    const bool whole = schema.is_object() && schema.value("type", Json()) == "integer";
    add(kJsonString, "string");
    add(kJsonNumber, whole ? "integer" : "number");
    add(kJsonBoolean, "boolean");
    add(kJsonNull, "\"null\"");
    if ((types & kJsonArray) != 0) add(kJsonArray, list(rule, schema, root, depth + 1));
    if ((types & kJsonObject) != 0) add(kJsonObject, object(rule + "-o", schema, root, depth + 1));
    return "(" + ways + ")";
  }

  std::string list(const std::string& rule, const Json& schema, const Json& root, int depth) {
    if (!schema.is_object() || !schema.contains("items")) return "list";
    const std::string item = value(rule + "-i", schema["items"], root, depth);
    rules_ += fmt::format("{}-i ::= {}\n", rule, item);
    return fmt::format("\"[\" ({0}-i (\",\" {0}-i)*)? \"]\"", rule);
  }

  std::string object(const std::string& rule, const Json& schema, const Json& root, int depth) {
    if (!schema.is_object() || !schema.contains("properties") || !schema["properties"].is_object())
      return "object";
    std::map<std::string, std::string> pairs;  // the rule of each key with its value
    for (const auto& [key, property] : schema["properties"].items()) {
      const std::string pair = fmt::format("{}-{}", rule, pairs.size());
      const std::string written = value(pair, property, root, depth);
      rules_ += fmt::format("{}-p ::= {} {}\n", pair, gbnf_literal(key + ":"), written);
      pairs[key] = pair + "-p";
    }
    if (pairs.empty()) return "\"{}\"";
    return fmt::format("\"{{\" {} \"}}\"",
                       is_auto_ ? any_order(rule, pairs) : in_order(rule, pairs, schema));
  }

  std::string any_order(const std::string& rule, const std::map<std::string, std::string>& pairs) {
    std::string ways;
    for (const auto& [key, pair] : pairs) ways += (ways.empty() ? "" : " | ") + pair;
    rules_ += fmt::format("{}-each ::= {}\n", rule, ways);
    return fmt::format("({0}-each (\",\" {0}-each)*)?", rule);
  }

  // RULE-first-N: nothing has come before the pair N; RULE-next-N: something has.
  std::string in_order(const std::string& rule, const std::map<std::string, std::string>& pairs,
                       const Json& schema) {
    const Json required = schema.value("required", Json::array());
    std::size_t n = 0;
    for (const auto& [key, pair] : pairs) {
      const bool needed = std::find(required.begin(), required.end(), Json(key)) != required.end();
      rules_ += fmt::format("{0}-first-{1} ::= {2} {0}-next-{3}", rule, n, pair, n + 1);
      if (!needed) rules_ += fmt::format(" | {}-first-{}", rule, n + 1);
      rules_ += fmt::format("\n{0}-next-{1} ::= \",\" {2} {0}-next-{3}", rule, n, pair, n + 1);
      if (!needed) rules_ += fmt::format(" | {}-next-{}", rule, n + 1);
      rules_ += "\n";
      ++n;
    }
    rules_ += fmt::format("{0}-first-{1} ::= \"\"\n{0}-next-{1} ::= \"\"\n", rule, n);
    return rule + "-first-0";
  }

  const ToolGrammarOptions& options_;
  const bool is_auto_;
  std::string rules_;
};

}  // namespace

ToolGrammar gemma_tool_grammar(const Json& tools, const ToolGrammarOptions& options) {
  return GemmaGrammarWriter(options).write(tools);
}

}  // namespace moeflux
