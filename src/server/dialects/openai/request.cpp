#include <algorithm>

#include <fmt/format.h>

#include "server/dialects/llama/llama.h"
#include "server/dialects/openai/openai.h"
#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

constexpr std::int64_t kMaxTextLogprobs = 5;

std::int64_t read_max_tokens(const RequestFields& fields) {
  for (const char* name : {"max_completion_tokens", "max_tokens"}) {
    if (const auto given = fields.integer(name, -1)) {
      if (*given == 0) fields.refuse(name, "is 0, but must be at least 1");
      return std::max<std::int64_t>(*given, 0);
    }
  }
  return std::max<std::int64_t>(fields.integer("n_predict", -1).value_or(0), 0);
}

// {"json_schema": {"schema": ...}}, or flat.
void read_json_schema(const RequestFields& fields, const RequestFields& format,
                      OutputFormat& output) {
  const auto holder = format.inner("json_schema");
  const Json* schema = (holder ? *holder : format).find("schema");
  if (schema == nullptr) fields.refuse("response_format", "has no schema");
  if (!schema->is_object() && !schema->is_boolean())
    format.refuse("json_schema.schema", "must be an object");
  output.kind = OutputFormat::Kind::JsonSchema;
  output.schema = *schema;
}

}  // namespace

OutputFormat read_output(const RequestFields& fields) {
  OutputFormat output;
  if (const auto grammar = fields.string("grammar"); grammar && !grammar->empty()) {
    output.kind = OutputFormat::Kind::Grammar;
    output.grammar = *grammar;
  }
  if (const Json* schema = fields.find("json_schema")) {
    output.kind = OutputFormat::Kind::JsonSchema;
    output.schema = *schema;
  }
  const auto format = fields.inner("response_format");
  if (!format) return output;
  const std::string type = format->string("type").value_or("");
  if (output.kind != OutputFormat::Kind::Text && type != "text")
    fields.refuse("response_format", "and grammar or json_schema exclude each other");
  if (type == "text") return output;
  if (type == "json_schema") {
    read_json_schema(fields, *format, output);
  } else if (type == "json_object") {
    output.kind = OutputFormat::Kind::JsonObject;
    if (fields.object("response_format")->contains("schema"))
      read_json_schema(fields, *format, output);
  } else {
    format->refuse_value("type", type, "text, json_object or json_schema");
  }
  return output;
}

namespace {

// What both kinds of request have.
OpenAiRequest read_common(const RequestFields& fields) {
  OpenAiRequest request;
  GenerationRequest& generation = request.generation;
  generation.sampling = read_sampling(fields);
  generation.max_tokens = read_max_tokens(fields);
  generation.stop = read_stop(fields);
  generation.stop_in_thoughts = fields.boolean("stop_in_thoughts").value_or(false);
  generation.ignore_end = fields.boolean("ignore_eos").value_or(false);
  generation.n = static_cast<int>(fields.integer("n", 1, kMaxChoices).value_or(1));
  generation.output = read_output(fields);
  request.stream = fields.boolean("stream").value_or(false);
  if (const auto options = fields.inner("stream_options"))
    request.include_usage = options->boolean("include_usage").value_or(false);
  request.return_progress = fields.boolean("return_progress").value_or(false);
  request.timings_per_token = fields.boolean("timings_per_token").value_or(false);
  generation.report_tokens = request.timings_per_token;
  return request;
}

// Every member must be a token.
std::vector<TokenId> read_tokens(const RequestFields& fields, const Json& list) {
  std::vector<TokenId> tokens;
  for (const Json& token : list) {
    if (!token.is_number_integer() || token.get<std::int64_t>() < 0 ||
        token.get<std::int64_t>() > INT32_MAX)
      fields.refuse("prompt", "must be a text, a list of tokens, or a list of such");
    tokens.push_back(token.get<TokenId>());
  }
  return tokens;
}

std::vector<TokenId> encode_text(const Tokenizer& tokenizer, const std::string& text) {
  return naming("prompt",
                [&] { return tokenizer.with_special_tokens(tokenizer.encode_markup(text)); });
}

// [12, "text", 13]: one prompt of both.
std::vector<TokenId> read_mixed(const RequestFields& fields, const Json& list,
                                const Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  for (const Json& part : list) {
    const std::vector<TokenId> more =
        part.is_string()
            ? naming("prompt", [&] { return tokenizer.encode_markup(part.get<std::string>()); })
            : read_tokens(fields, Json::array({part}));
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

constexpr const char* kPromptForms = "must be a text, a list of tokens, or a list of such";

// {"prompt_string": "text"}, which other servers let images stand beside.
const Json& prompt_text(const RequestFields& fields, const Json& prompt) {
  const RequestFields members(prompt, "prompt.");
  if (const Json* data = members.array("multimodal_data"); data != nullptr && !data->empty())
    members.refuse("multimodal_data", "cannot be read: text only");
  const Json* text = members.find("prompt_string");
  if (text == nullptr || !text->is_string()) fields.refuse("prompt", kPromptForms);
  return *text;
}

}  // namespace

std::vector<std::vector<TokenId>> read_prompts(const RequestFields& fields,
                                               const Tokenizer& tokenizer) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) fields.refuse("prompt", "is missing");
  const auto read_text = [&](const Json& text) {
    return encode_text(tokenizer, text.get_ref<const std::string&>());
  };
  if (prompt->is_string()) return {read_text(*prompt)};
  if (prompt->is_object()) return {read_text(prompt_text(fields, *prompt))};
  if (!prompt->is_array() || prompt->empty()) fields.refuse("prompt", kPromptForms);
  const auto is_number = [](const Json& each) { return each.is_number(); };
  const auto n_numbers = std::count_if(prompt->begin(), prompt->end(), is_number);
  if (n_numbers == std::ssize(*prompt)) return {read_tokens(fields, *prompt)};
  if (n_numbers > 0) return {read_mixed(fields, *prompt, tokenizer)};
  std::vector<std::vector<TokenId>> prompts;
  for (const Json& each : *prompt) {
    if (each.is_string())
      prompts.push_back(read_text(each));
    else if (each.is_array())
      prompts.push_back(read_mixed(fields, each, tokenizer));
    else if (each.is_object())
      prompts.push_back(read_text(prompt_text(fields, each)));
    else
      fields.refuse("prompt", kPromptForms);
  }
  return prompts;
}

namespace {

// What was called functions before it was called tools. A message then calls one at most.
void read_functions(const RequestFields& fields, OpenAiRequest& request) {
  GenerationRequest& generation = request.generation;
  const Json* functions = fields.array("functions");
  if (functions == nullptr || !generation.tools.is_null()) return;
  request.legacy_calls = true;
  generation.parallel_tool_calls = false;
  generation.tools = Json::array();
  for (std::size_t i = 0; i < functions->size(); ++i) {
    if (!(*functions)[i].is_object())
      fields.refuse(fmt::format("functions[{}]", i), "must be an object");
    generation.tools.push_back({{"type", "function"}, {"function", (*functions)[i]}});
  }
  const Json* call = fields.find("function_call");
  if (call == nullptr) return;
  if (call->is_object()) {
    const RequestFields named(*call, "function_call.");
    generation.tool_choice = {{"type", "function"},
                              {"function", {{"name", named.required_string("name")}}}};
  } else if (*call == "auto" || *call == "none") {
    generation.tool_choice = *call;
  } else {
    fields.refuse("function_call", "must be \"auto\", \"none\" or an object with a name");
  }
}

// What a chat cannot give: answers that are heard or seen.
void check_modalities(const RequestFields& fields) {
  if (fields.find("audio") != nullptr)
    fields.refuse("audio", "cannot be written: this server answers in text only");
  const Json* modalities = fields.array("modalities");
  if (modalities == nullptr) return;
  for (const Json& each : *modalities) {
    if (each != "text")
      fields.refuse("modalities", fmt::format("has {}, but this server answers in text only",
                                              dump_json(each).substr(0, 80)));
  }
}

// The prompt is what comes before, the answer what comes between.
void read_suffix(const RequestFields& fields, const std::string& suffix, const Tokenizer& tokenizer,
                 GenerationRequest& request) {
  auto prompt = naming("suffix", [&] {
    return infill_prompt(
        tokenizer, {.prefix = fields.required_string("prompt"), .suffix = suffix, .begun = ""});
  });
  if (!prompt) fields.refuse("suffix", "is not supported: this model has no tokens for infilling");
  request.prompts = {std::move(prompt->tokens)};
  request.end_tokens = std::move(prompt->ends);
}

}  // namespace

OpenAiRequest read_chat_request(const Json& body) {
  const RequestFields fields(body);
  OpenAiRequest request = read_common(fields);
  GenerationRequest& generation = request.generation;
  const Json* messages = fields.array("messages");
  if (messages == nullptr || messages->empty())
    fields.refuse("messages", "must be a list of messages");
  generation.messages = *messages;
  if (const Json* tools = fields.array("tools")) generation.tools = *tools;
  if (const Json* choice = fields.find("tool_choice")) generation.tool_choice = *choice;
  generation.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  read_functions(fields, request);
  check_modalities(fields);
  generation.continues = read_continues(fields);
  generation.stream_arguments = request.stream;
  generation.thinking = naming("reasoning_effort", [&] { return read_thinking(body); });
  if (const Json* variables = fields.object("chat_template_kwargs"))
    generation.template_variables = *variables;
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (fields.boolean("logprobs").value_or(false))
    generation.top_logprobs = static_cast<int>(top.value_or(0));
  else if (top.value_or(0) > 0)
    fields.refuse("top_logprobs", "needs logprobs: true");
  return request;
}

OpenAiRequest read_completion_request(const Json& body, const Tokenizer& tokenizer) {
  const RequestFields fields(body);
  OpenAiRequest request = read_common(fields);
  if (const auto suffix = fields.string("suffix"); suffix && !suffix->empty())
    read_suffix(fields, *suffix, tokenizer, request.generation);
  else
    request.generation.prompts = read_prompts(fields, tokenizer);
  if (fields.integer("best_of", 1).value_or(1) > request.generation.n)
    fields.refuse("best_of", "must not be larger than n");
  if (const Json* logprobs = fields.find("logprobs");
      logprobs != nullptr && logprobs->is_boolean()) {
    if (logprobs->get<bool>()) request.generation.top_logprobs = 0;
  } else if (const auto top = fields.integer("logprobs", 0, kMaxTextLogprobs)) {
    request.generation.top_logprobs = static_cast<int>(*top);
  }
  if (fields.boolean("echo").value_or(false)) {
    for (const std::vector<TokenId>& tokens : request.generation.prompts)
      request.echo.push_back(tokenizer.decode(tokens));
  }
  return request;
}

}  // namespace moeflux
