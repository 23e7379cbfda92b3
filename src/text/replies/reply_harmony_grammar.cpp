// What has to be forced so that a model that writes Harmony calls a tool, or answers in a form.
#include <fmt/format.h>

#include "text/replies/reply_calls.h"
#include "text/replies/reply_gbnf.h"
#include "text/replies/reply_harmony.h"

namespace moeflux {
namespace {

// "thought": the message of a thought and the head of the next one up to its role; "thought-rest":
// the same from inside of the thought.
std::string thought_rules() {
  return fmt::format("thought ::= {} thought-rest\nthought-rest ::= text-0 {} {}\n",
                     gbnf_literal(kHarmonyThought), gbnf_literal(kHarmonyEnd),
                     gbnf_literal(kHarmonyTurn)) +
         gbnf_rules_without("text", kHarmonyEnd);
}

}  // namespace

ToolGrammar harmony_tool_grammar(const Json& tools, const ToolGrammarOptions& options) {
  const bool is_auto = options.choice.mode == ToolChoice::Mode::Auto;
  ToolGrammar result;
  std::string rules, calls;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const Json& function = tool_function(tools[i]);
    const std::string rule = fmt::format("call-{}", i);
    const std::string name = function.value("name", "");
    const std::string arguments = gbnf_arguments(rule + "-arguments", function, gbnf_literal("{}"),
                                                 options.use_schemas, result.schemas);
    if (is_auto) {
      rules +=
          fmt::format("{} ::= {} channel constraint {}\n", rule, gbnf_literal(name), arguments);
    } else {
      const std::string to = fmt::format("{}{}", kHarmonyToFunction, name);
      rules +=
          fmt::format("{} ::= ({} | {}) constraint {}\n", rule,
                      gbnf_literal(fmt::format("{}{}commentary", to, kHarmonyChannel)),
                      gbnf_literal(fmt::format("{}commentary{}", kHarmonyChannel, to)), arguments);
    }
    calls += fmt::format("{}{}", i == 0 ? "" : " | ", rule);
  }
  rules += fmt::format("constraint ::= (\" \"? {}? \"json\")? {}\n",
                       gbnf_literal(kHarmonyConstrain), gbnf_literal(kHarmonyMessage));
  if (is_auto) {
    rules += fmt::format("channel ::= ({} (\"commentary\" | \"analysis\"))?\nroot ::= {}\n",
                         gbnf_literal(kHarmonyChannel), calls);
    result.starts_after = kHarmonyToFunction;
  } else {
    rules +=
        fmt::format("root ::= {} ({})\n{}", options.opens_thought ? "thought-rest" : "thought?",
                    calls, thought_rules());
  }
  result.gbnf = std::move(rules);
  return result;
}

std::string harmony_answer_grammar() {
  return fmt::format("root ::= thought? {} value\n", gbnf_literal(kHarmonyAnswer)) +
         thought_rules();
}

}  // namespace moeflux
