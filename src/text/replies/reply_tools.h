// tool_choice: what a request demands, and how a model is made to keep to it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/replies/reply_parser.h"

namespace moeflux {

struct ToolChoice {
  enum class Mode { Auto, None, Required, Named };
  Mode mode = Mode::Auto;
  std::string name = {};  // Named: the only tool that may be called
};

// "auto", "none", "required" ("any"), or an object naming a function. `tools` as normalize_tools()
// gives them. Throws BadInput for a name that is not among them, or a demand without tools.
ToolChoice read_tool_choice(const Json& choice, const Json& tools);

// With None, a template must not be shown the tools at all: null then. With Named only that one.
Json tools_to_render(const ToolChoice& choice, const Json& tools);

// A grammar of replies whose calls are well-formed, name one of the tools and have arguments by its
// schema.
struct ToolGrammar {
  std::string gbnf;
  std::map<std::string, Json> schemas;  // of the rules that are used but not in it
  // The grammar describes what follows this text, everything before it being free; empty: it
  // describes the whole reply.
  std::string starts_after;
  bool repeats = false;  // after a match everything is free again, up to the next such text
};

struct ToolGrammarOptions {
  ToolChoice choice = {};
  bool parallel = true;        // several calls in one answer
  bool opens_thought = false;  // the answer begins inside of a thought, which is free text
  // False: arguments are any JSON, for schemas that a grammar cannot express.
  bool use_schemas = true;
};

// Auto: starts after the marker that opens a block of calls. Required and Named: the whole reply,
// or what follows its thought. Throws BadInput for Plain, None and without tools.
ToolGrammar tool_grammar(ReplyFormat format, const Json& tools, const ToolGrammarOptions& options);

}  // namespace moeflux
