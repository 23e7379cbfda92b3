#include "text/replies/reply_tools.h"

#include <algorithm>

#include "base/error.h"
#include "text/replies/reply_calls.h"
#include "text/replies/reply_gbnf.h"
#include "text/replies/reply_gemma.h"
#include "text/replies/reply_harmony.h"
#include "text/replies/reply_json.h"

namespace moeflux {
namespace {

// ---- tool_choice

bool has_tools(const Json& tools) {
  return tools.is_array() && !tools.empty();
}

std::string named_in(const Json& choice) {
  // {"type": "function", "function": {"name"}}, {"type": "function", "name"}, and Anthropic's
  // {"type": "tool", "name"}.
  const Json& holder = tool_function(choice);
  const auto name = holder.find("name");
  if (name == holder.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) {
    fail(Errc::BadInput, "\"tool_choice\": \"function.name\" must name a tool");
  }
  return name->get<std::string>();
}

ToolChoice choice_of_word(const std::string& word) {
  using Mode = ToolChoice::Mode;
  if (word == "auto") return {Mode::Auto};
  if (word == "none") return {Mode::None};
  if (word == "required" || word == "any") return {Mode::Required};
  fail(Errc::BadInput,
       "\"tool_choice\" is \"{}\", but must be auto, none, required or an object naming a function",
       word.substr(0, 80));
}

ToolChoice parse_choice(const Json& choice) {
  if (choice.is_null()) return {};
  if (choice.is_string()) return choice_of_word(choice.get<std::string>());
  if (!choice.is_object()) fail(Errc::BadInput, "\"tool_choice\" must be a string or an object");
  const auto type = choice.find("type");
  if (type != choice.end() && !type->is_string()) {
    fail(Errc::BadInput, "\"tool_choice.type\" must be a string");
  }
  const std::string kind = type == choice.end() ? "function" : type->get<std::string>();
  if (kind == "function" || kind == "tool") return {ToolChoice::Mode::Named, named_in(choice)};
  return choice_of_word(kind);
}

// ---- the grammar of calls

// A call that is demanded is written as templates write it. One that a model makes by itself (Auto)
// may have any form its parser reads, as far as a grammar can say that: blanks at the edges of
// markup, and tags in any order. So a model that calls well is never disturbed.
class ToolGrammarWriter {
 public:
  ToolGrammarWriter(ReplyFormat format, const Json& tools, const ToolGrammarOptions& options)
      : format_(format), shape_(call_shape(format)), tools_(tools), options_(options) {}

  ToolGrammar write() {
    std::string calls;
    for (std::size_t i = 0; i < tools_.size(); ++i) {
      calls += fmt::format("{}call-{}", i == 0 ? "" : " | ", i);
      add_call(i, tool_function(tools_[i]));
    }
    add_rule("call", calls);
    add_root();
    if (needs_text_) rules_ += gbnf_rules_without("text", value_end());
    if (is_auto()) add_rule("blanks", "[ \\t\\r\\n]{0,8}");
    result_.gbnf = std::move(rules_);
    return std::move(result_);
  }

 private:
  bool is_auto() const { return options_.choice.mode == ToolChoice::Mode::Auto; }
  std::string_view value_end() const { return tagged_markup(format_).parameter_end; }

  void add_rule(const std::string& name, const std::string& body) {
    rules_ += name + " ::= " + body + "\n";
  }

  // Markup, and where blanks do not matter, any at its edges.
  std::string markup(std::string_view text) const {
    if (!is_auto()) return gbnf_literal(text);
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text.empty() ? "blanks" : fmt::format("blanks {} blanks", gbnf_literal(text));
  }

  void add_root() {
    const std::string between = markup(shape_.between);
    const std::string call_list =
        shape_.calls_share_block && options_.parallel ? "call (" + between + " call)*" : "call";
    if (is_auto()) {
      const std::string opener = call_markers(format_).openers.front();
      result_.starts_after = opener;
      result_.repeats = options_.parallel;
      const std::string begin = shape_.block_begin.substr(opener.size());
      add_rule("root", fmt::format("{} {} {}", markup(begin), call_list, last_markup()));
      return;
    }
    add_rule("block", fmt::format("{} {} {}", gbnf_literal(shape_.block_begin), call_list,
                                  gbnf_literal(shape_.block_end)));
    const bool many_blocks = !shape_.calls_share_block && options_.parallel;
    const std::string blocks = many_blocks ? "block (" + between + " block)*" : "block";
    if (options_.opens_thought) result_.starts_after = kThoughtEnd;
    // GLM's replies begin on a line of their own.
    const bool on_new_line = options_.opens_thought || format_ == ReplyFormat::Glm;
    add_rule("root", on_new_line ? "\"\\n\"{0,2} " + blocks : blocks);
  }

  // The end of a block: what follows it is not the grammar's matter.
  std::string last_markup() const {
    std::string_view end = shape_.block_end;
    while (!end.empty() && is_blank(end.front())) end.remove_prefix(1);
    return "blanks " + gbnf_literal(end);
  }

  void add_call(std::size_t index, const Json& function) {
    const std::string rule = fmt::format("call-{}", index);
    std::string name = function.value("name", "");
    if (format_ == ReplyFormat::Hermes) {
      name = json_string(name);
      name = name.substr(1, name.size() - 2);
    }
    const std::string arguments =
        is_tagged(format_) ? parameters(rule, parameters_schema(&function))
                           : gbnf_arguments(rule + "-arguments", function,
                                            is_auto() ? "\"{\" blanks \"}\"" : gbnf_literal("{}"),
                                            options_.use_schemas, result_.schemas);
    add_rule(rule, fmt::format("{} {} {} {} {}", before_name(), gbnf_literal(name), after_name(),
                               arguments, markup(shape_.after_arguments)));
  }

  // Nothing stands between a name and the markup around it.
  std::string before_name() const {
    if (!is_auto()) return gbnf_literal(shape_.before_name);
    if (format_ == ReplyFormat::Hermes) return json_between("", "{", "name") + " \"\\\"\"";
    return "blanks " + gbnf_literal(shape_.before_name);
  }
  std::string after_name() const {
    if (is_auto() && format_ == ReplyFormat::Hermes) return json_between("\"", ",", "arguments");
    if (format_ == ReplyFormat::Kimi) {
      return fmt::format("\":\" [0-9]{{1,3}} {}{}", gbnf_literal(marked_markup(format_).separator),
                         is_auto() ? " blanks" : "");
    }
    std::string_view text = shape_.after_name;
    if (!is_auto()) return gbnf_literal(text);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return gbnf_literal(text) + " blanks";
  }

  // In a JSON object, what comes after a text up to the value of the next key.
  static std::string json_between(std::string_view close, std::string_view sign,
                                  std::string_view key) {
    return fmt::format("{} blanks {} blanks {} blanks \":\" blanks", gbnf_literal(close),
                       gbnf_literal(sign), gbnf_literal(fmt::format("\"{}\"", key)));
  }

  std::string add_schema(const std::string& rule, Json schema) {
    result_.schemas[rule] = std::move(schema);
    return rule;
  }

  // ---- arguments as tags, in the order of the schema

  std::string parameters(const std::string& rule, const Json& schema) {
    const auto properties = schema.find("properties");
    if (properties == schema.end() || !properties->is_object()) {
      if (schema.empty()) return "\"\"";
      needs_text_ = true;
      return fmt::format("({} [^\\n<>\\\"]{{1,64}} {})*",
                         gbnf_literal(tagged_markup(format_).parameter_begin),
                         after_key(true) + " text-0 " + parameter_close());
    }
    std::string body;
    std::vector<std::string> required, others;
    std::size_t index = 0;
    for (const auto& [key, property] : properties->items()) {
      const std::string name = fmt::format("{}-{}", rule, index++);
      add_parameter(name, key, property, schema);
      const bool needed = is_required(schema, key);
      (needed ? required : others).push_back(name);
      body += name + (needed ? " " : "? ");
    }
    if (is_auto()) return gbnf_any_order(rule + "-r", required, others, rules_);
    return body.empty() ? "\"\"" : "(" + body + ")";
  }

  static bool is_required(const Json& schema, const std::string& key) {
    const auto required = schema.find("required");
    return required != schema.end() && required->is_array() &&
           std::find(required->begin(), required->end(), Json(key)) != required->end();
  }

  // From the name of a parameter to its value.
  std::string after_key(bool is_string) const {
    const TaggedMarkup& markup = tagged_markup(format_);
    if (markup.names_string)
      return is_string ? R"("\" string=\"true\">")" : R"("\" string=\"false\">")";
    const std::string open = gbnf_literal(markup.parameter_open);
    if (!markup.value_open.empty()) {
      return fmt::format("{} {} {}", open, is_auto() ? "blanks" : gbnf_literal(line_end()),
                         gbnf_literal(markup.value_open));
    }
    return is_auto() || !markup.lines ? open : open + " \"\\n\"";
  }
  // Of tags that stand on lines of their own.
  std::string_view line_end() const { return format_ == ReplyFormat::GlmCompact ? "" : "\n"; }
  std::string parameter_close() const {
    const TaggedMarkup& markup = tagged_markup(format_);
    if (is_auto()) return gbnf_literal(markup.parameter_end) + " blanks";
    return gbnf_literal(
        fmt::format("{}{}{}", markup.lines ? "\n" : "", markup.parameter_end, line_end()));
  }
  std::string within_blanks(const std::string& value) const {
    return is_auto() ? "blanks " + value + " blanks" : value;
  }
  // Of a text, all other blanks are a part.
  std::string on_lines(const std::string& value) const {
    return is_auto() && tagged_markup(format_).lines ? "\"\\n\"? " + value + " \"\\n\"?" : value;
  }

  void add_parameter(const std::string& rule, const std::string& key, const Json& property,
                     const Json& root) {
    const unsigned types = allowed_types(property, root);
    const bool is_string = (types & kJsonString) != 0;
    const std::string begin =
        gbnf_literal(std::string(tagged_markup(format_).parameter_begin) + key);
    add_rule(rule, fmt::format("{} {} {} {}", begin, after_key(is_string),
                               is_string ? text_value(property)
                                         : json_value(rule + "-value", key, property, root),
                               parameter_close()));
  }

  // Free text, or one of the texts that are listed.
  std::string text_value(const Json& property) {
    const auto values = property.is_object() ? property.find("enum") : property.end();
    const bool listed =
        options_.use_schemas && property.is_object() && values != property.end() &&
        values->is_array() && !values->empty() &&
        std::all_of(values->begin(), values->end(), [](const Json& v) { return v.is_string(); });
    if (!listed) {
      needs_text_ = true;
      return "text-0";
    }
    std::string body;
    for (const Json& value : *values) {
      body += (body.empty() ? "" : " | ") + gbnf_literal(value.get<std::string>());
    }
    return on_lines("(" + body + ")");
  }

  // A reference that leads elsewhere than to the definitions.
  static bool refers_to_root(const Json& schema) {
    if (schema.is_object()) {
      const auto reference = schema.find("$ref");
      if (reference != schema.end() && reference->is_string()) {
        const auto& text = reference->get_ref<const std::string&>();
        if (!text.starts_with("#/$defs/") && !text.starts_with("#/definitions/")) return true;
      }
    }
    return schema.is_structured() && std::any_of(schema.begin(), schema.end(), refers_to_root);
  }

  // The schema of one parameter, in the company of the whole, whose references stay what they are.
  static Json parameter_within(const std::string& key, const Json& root) {
    Json whole = root;
    if (!whole.contains("$id") || !whole["$id"].is_string()) whole["$id"] = "urn:tool";
    const std::string id = whole["$id"].get<std::string>();
    std::string step;
    for (const char c : key) {
      step += c == '~' ? "~0" : c == '/' ? "~1" : c == '%' ? "%25" : std::string(1, c);
    }
    return {{"$ref", id.substr(0, id.find('#')) + "#/properties/" + step},
            {"$defs", {{"tool", std::move(whole)}}}};
  }

  std::string json_value(const std::string& rule, const std::string& key, const Json& property,
                         const Json& root) {
    if (!options_.use_schemas) {
      const unsigned types = allowed_types(property, root);
      Json names = Json::array();
      for (const auto& [type, name] :
           {std::pair{kJsonNull, "null"}, std::pair{kJsonBoolean, "boolean"},
            std::pair{kJsonNumber, "number"}, std::pair{kJsonArray, "array"},
            std::pair{kJsonObject, "object"}}) {
        if ((types & type) != 0) names.push_back(name);
      }
      return within_blanks(add_schema(rule, Json{{"type", names}}));
    }
    if (refers_to_root(property)) {
      return within_blanks(add_schema(rule, parameter_within(key, root)));
    }
    Json schema = property;
    for (const char* shared : {"$defs", "definitions"}) {
      if (schema.is_object() && root.contains(shared) && !schema.contains(shared)) {
        schema[shared] = root[shared];
      }
    }
    return within_blanks(add_schema(rule, std::move(schema)));
  }

  const ReplyFormat format_;
  const CallShape shape_;
  const Json& tools_;
  const ToolGrammarOptions& options_;
  std::string rules_;
  bool needs_text_ = false;
  ToolGrammar result_;
};

}  // namespace

ToolChoice read_tool_choice(const Json& choice, const Json& tools) {
  const ToolChoice result = parse_choice(choice);
  const bool demands =
      result.mode == ToolChoice::Mode::Required || result.mode == ToolChoice::Mode::Named;
  if (demands && !has_tools(tools)) {
    fail(Errc::BadInput, "\"tool_choice\" demands a call, but the request has no \"tools\"");
  }
  if (result.mode == ToolChoice::Mode::Named && find_tool(tools, result.name) == nullptr) {
    fail(Errc::BadInput, "\"tool_choice\" names \"{}\", which is not among the \"tools\"",
         result.name.substr(0, 80));
  }
  return result;
}

Json tools_to_render(const ToolChoice& choice, const Json& tools) {
  if (choice.mode == ToolChoice::Mode::None || !has_tools(tools)) return nullptr;
  if (choice.mode != ToolChoice::Mode::Named) return tools;
  for (const Json& tool : tools) {
    if (tool_function(tool).value("name", "") == choice.name) return Json::array({tool});
  }
  return nullptr;
}

ToolGrammar tool_grammar(ReplyFormat format, const Json& tools, const ToolGrammarOptions& options) {
  const Json callable = tools_to_render(options.choice, tools);
  if (format == ReplyFormat::Plain || callable.is_null()) {
    fail(Errc::BadInput, "there is no grammar for calls: {}",
         callable.is_null() ? "no tool may be called" : "the template has no format for them");
  }
  if (format == ReplyFormat::Gemma) return gemma_tool_grammar(callable, options);
  if (format == ReplyFormat::Harmony) return harmony_tool_grammar(callable, options);
  return ToolGrammarWriter(format, callable, options).write();
}

}  // namespace moeflux
