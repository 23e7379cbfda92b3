#include <algorithm>

#include <fmt/format.h>

#include "server/dialects/llama/llama.h"
#include "server/dialects/ollama/ollama.h"
#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

bool is_given(const Json* value) {
  return value != nullptr &&
         !(value->is_string() && value->get_ref<const std::string&>().empty()) &&
         !(value->is_array() && value->empty());
}

void refuse_images(const RequestFields& fields) {
  if (is_given(fields.find("images"))) fields.refuse("images", "cannot be read: text only");
}

ThinkingChoice read_think(const RequestFields& fields) {
  const Json* think = fields.find("think");
  if (think == nullptr) return {};
  if (think->is_boolean()) return {.enabled = think->get<bool>(), .effort = {}, .budget = {}};
  if (!think->is_string()) fields.refuse("think", "must be true, false or a level");
  return naming("think", [&] { return thinking_of_effort(think->get_ref<const std::string&>()); });
}

OutputFormat read_format(const RequestFields& fields) {
  OutputFormat output;
  const Json* format = fields.find("format");
  if (!is_given(format)) return output;
  if (format->is_object()) {
    output.kind = OutputFormat::Kind::JsonSchema;
    output.schema = *format;
  } else if (*format == "json") {
    output.kind = OutputFormat::Kind::JsonObject;
  } else {
    fields.refuse("format", "must be \"json\" or a JSON schema");
  }
  return output;
}

void read_options(const RequestFields& fields, std::int64_t context, GenerationRequest& request) {
  const auto options = fields.inner("options");
  if (!options) return;
  request.sampling = read_sampling(*options);
  request.stop = read_stop(*options);
  // Negative numbers and 0: no limit but the context's.
  request.max_tokens = std::max<std::int64_t>(options->integer("num_predict").value_or(0), 0);
  if (const auto num_ctx = options->integer("num_ctx"); num_ctx && *num_ctx > context) {
    options->refuse("num_ctx",
                    fmt::format("is {}, but the server was started with a context of {}; "
                                "ask for less, or start it with a larger --ctx-size",
                                *num_ctx, context));
  }
}

void read_logprobs(const RequestFields& fields, GenerationRequest& request) {
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (fields.boolean("logprobs").value_or(false))
    request.top_logprobs = static_cast<int>(top.value_or(0));
}

OllamaRequest read_common(const Json& body, std::int64_t context) {
  const RequestFields fields(body);
  OllamaRequest request;
  GenerationRequest& generation = request.generation;
  request.model = read_ollama_model(body);
  request.stream = fields.boolean("stream").value_or(true);
  generation.thinking = read_think(fields);
  generation.output = read_format(fields);
  generation.stream_arguments = false;  // a call is one object here
  generation.continues = read_continues(fields);
  generation.stop_in_thoughts = fields.boolean("stop_in_thoughts").value_or(false);
  read_options(fields, context, generation);
  read_logprobs(fields, generation);
  return request;
}

// One message in the form of text/replies/reply_history.h, which checks all that is not different
// here.
Json read_message(const Json& message, const std::string& prefix) {
  if (!message.is_object()) throw bad_request(prefix + " must be an object", "messages");
  refuse_images(RequestFields(message, prefix + "."));
  Json result = message;
  if (const auto thinking = result.find("thinking"); thinking != result.end()) {
    Json thought = std::move(*thinking);
    result.erase("thinking");
    result["reasoning_content"] = std::move(thought);
  }
  if (const auto name = result.find("tool_name"); name != result.end() && !name->is_null())
    result["name"] = Json(*name);
  return result;
}

void refuse_given(const RequestFields& fields, const char* name, const std::string& why) {
  if (is_given(fields.find(name))) fields.refuse(name, why);
}

}  // namespace

std::string read_ollama_model(const Json& body) {
  const RequestFields fields(body);
  for (const char* name : {"model", "name"}) {
    const std::string model = fields.string(name).value_or("");
    if (model.size() > kMaxModelName)
      fields.refuse(name, fmt::format("is longer than {} bytes", kMaxModelName));
    if (!model.empty()) return model;
  }
  return "";
}

OllamaRequest read_ollama_chat(const Json& body, std::int64_t context) {
  const RequestFields fields(body);
  OllamaRequest request = read_common(body, context);
  if (const Json* tools = fields.array("tools")) request.generation.tools = *tools;
  const Json* messages = fields.array("messages");
  request.only_load = messages == nullptr || messages->empty();
  if (request.only_load) return request;
  request.generation.messages = Json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    request.generation.messages.push_back(
        read_message((*messages)[i], fmt::format("messages[{}]", i)));
  }
  return request;
}

OllamaRequest read_ollama_generate(const Json& body, std::int64_t context,
                                   const Tokenizer& tokenizer) {
  const RequestFields fields(body);
  OllamaRequest request = read_common(body, context);
  refuse_images(fields);
  refuse_given(fields, "template", "cannot be changed: the model's own is used, or none with raw");
  refuse_given(fields, "context", "is not supported: send the conversation to /api/chat");
  const std::string prompt = fields.string("prompt").value_or("");
  const std::string system = fields.string("system").value_or("");
  const std::string suffix = fields.string("suffix").value_or("");
  request.only_load = prompt.empty() && suffix.empty();
  if (request.only_load) return request;
  if (!suffix.empty()) {
    auto infill = naming("suffix", [&] {
      return infill_prompt(tokenizer, {.prefix = prompt, .suffix = suffix, .begun = ""});
    });
    if (!infill)
      fields.refuse("suffix", "is not supported: this model has no tokens for infilling");
    request.generation.prompts = {std::move(infill->tokens)};
    request.generation.end_tokens = std::move(infill->ends);
    return request;
  }
  if (fields.boolean("raw").value_or(false)) {
    request.generation.prompts = {naming(
        "prompt", [&] { return tokenizer.with_special_tokens(tokenizer.encode_markup(prompt)); })};
    return request;
  }
  request.generation.messages = Json::array();
  if (!system.empty())
    request.generation.messages.push_back({{"role", "system"}, {"content", system}});
  request.generation.messages.push_back({{"role", "user"}, {"content", prompt}});
  return request;
}

}  // namespace moeflux
