#include <algorithm>

#include <fmt/format.h>

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

// What both kinds of request have.
OpenAiRequest read_common(const RequestFields& fields) {
  OpenAiRequest request;
  GenerationRequest& generation = request.generation;
  generation.sampling = read_sampling(fields);
  generation.max_tokens = read_max_tokens(fields);
  generation.stop = read_stop(fields);
  generation.ignore_end = fields.boolean("ignore_eos").value_or(false);
  generation.n = static_cast<int>(fields.integer("n", 1, kMaxChoices).value_or(1));
  generation.output = read_output(fields);
  request.stream = fields.boolean("stream").value_or(false);
  if (const auto options = fields.inner("stream_options"))
    request.include_usage = options->boolean("include_usage").value_or(false);
  request.return_progress = fields.boolean("return_progress").value_or(false);
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

std::vector<std::vector<TokenId>> read_prompts(const RequestFields& fields,
                                               const Tokenizer& tokenizer) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) fields.refuse("prompt", "is missing");
  if (prompt->is_string()) return {encode_text(tokenizer, prompt->get<std::string>())};
  if (!prompt->is_array() || prompt->empty())
    fields.refuse("prompt", "must be a text, a list of tokens, or a list of such");
  const auto is_number = [](const Json& each) { return each.is_number(); };
  const auto n_numbers = std::count_if(prompt->begin(), prompt->end(), is_number);
  if (n_numbers == std::ssize(*prompt)) return {read_tokens(fields, *prompt)};
  if (n_numbers > 0) return {read_mixed(fields, *prompt, tokenizer)};
  std::vector<std::vector<TokenId>> prompts;
  for (const Json& each : *prompt) {
    if (each.is_string())
      prompts.push_back(encode_text(tokenizer, each.get<std::string>()));
    else if (each.is_array())
      prompts.push_back(read_mixed(fields, each, tokenizer));
    else
      fields.refuse("prompt", "must be a text, a list of tokens, or a list of such");
  }
  return prompts;
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
  request.generation.prompts = read_prompts(fields, tokenizer);
  if (const auto suffix = fields.string("suffix"); suffix && !suffix->empty())
    fields.refuse("suffix", "is not supported: put the model's own infill tokens into the prompt");
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
