#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/dialects/llama/llama.h"
#include "server/dialects/openai/openai.h"
#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxFields = 64;
constexpr std::uint32_t kNewSeed = 0xFFFFFFFF;  // llama.cpp's word for a new one each time

// -1 and -2: as many as the context holds.
void read_n_predict(const RequestFields& fields, LlamaRequest& request) {
  for (const char* name : {"n_predict", "max_tokens"}) {
    const auto given = fields.integer(name, -2);
    if (!given) continue;
    request.only_reads = *given == 0;
    request.generation.max_tokens = request.only_reads ? 1 : std::max<std::int64_t>(*given, 0);
    return;
  }
}

void read_fields(const RequestFields& fields, LlamaRequest& request) {
  const Json* wanted = fields.array("response_fields");
  if (wanted == nullptr) return;
  for (const Json& name : *wanted) {
    if (!name.is_string()) fields.refuse("response_fields", "must be a list of texts");
    request.fields.push_back(name.get<std::string>());
  }
  if (request.fields.size() > kMaxFields)
    fields.refuse("response_fields", fmt::format("has more than {}", kMaxFields));
}

template <class T>
void take_over(Json& settings, const char* name, const std::optional<T>& given) {
  if (given) settings[name] = *given;
}

Json settings_of(const LlamaRequest& request, const SamplingParams& defaults) {
  Json settings = llama_settings(defaults);
  const SamplingChanges& changes = request.generation.sampling;
  take_over(settings, "seed", changes.seed);
  take_over(settings, "temperature", changes.temperature);
  take_over(settings, "top_k", changes.top_k);
  take_over(settings, "top_p", changes.top_p);
  take_over(settings, "min_p", changes.min_p);
  take_over(settings, "typical_p", changes.typical_p);
  take_over(settings, "repeat_penalty", changes.repetition_penalty);
  take_over(settings, "presence_penalty", changes.presence_penalty);
  take_over(settings, "frequency_penalty", changes.frequency_penalty);
  const GenerationRequest& generation = request.generation;
  const std::int64_t n = request.only_reads          ? 0
                         : generation.max_tokens > 0 ? generation.max_tokens
                                                     : -1;
  settings["n_predict"] = settings["max_tokens"] = n;
  settings["ignore_eos"] = generation.ignore_end;
  settings["stop"] = generation.stop;
  settings["stream"] = request.stream;
  settings["post_sampling_probs"] = generation.after_sampling;
  settings["n_probs"] = generation.top_logprobs.value_or(0);
  settings["timings_per_token"] = request.timings_per_token;
  settings["grammar"] = generation.output.grammar;
  settings["logit_bias"] = Json::array();
  for (const auto& [id, bias] : changes.logit_bias)
    settings["logit_bias"].push_back({{"token", id}, {"bias", bias}});
  return settings;
}

// All but the prompt.
LlamaRequest read_common(const RequestFields& fields, const Tokenizer& tokenizer,
                         const SamplingParams& defaults) {
  LlamaRequest request;
  GenerationRequest& generation = request.generation;
  generation.sampling = read_sampling(fields, &tokenizer);
  read_n_predict(fields, request);
  generation.stop = read_stop(fields);
  generation.ignore_end = fields.boolean("ignore_eos").value_or(false);
  generation.n = static_cast<int>(fields.integer("n", 1, kMaxChoices).value_or(1));
  generation.output = read_output(fields);
  if (const auto n = fields.integer("n_probs", 0, kMaxTopLogprobs); n && *n > 0)
    generation.top_logprobs = static_cast<int>(*n);
  generation.after_sampling = fields.boolean("post_sampling_probs").value_or(false);
  if (const Json* lora = fields.array("lora"); lora != nullptr && !lora->empty())
    fields.refuse("lora", "is not supported: this server has no adapters");
  request.stream = fields.boolean("stream").value_or(false);
  request.return_progress = fields.boolean("return_progress").value_or(false);
  request.timings_per_token = fields.boolean("timings_per_token").value_or(false);
  request.return_tokens = fields.boolean("return_tokens").value_or(false);
  generation.report_tokens = true;
  read_fields(fields, request);
  request.settings = settings_of(request, defaults);
  return request;
}

void add_texts(const Tokenizer& tokenizer, LlamaRequest& request) {
  for (const std::vector<TokenId>& tokens : request.generation.prompts)
    request.prompts.push_back(tokenizer.decode(tokens));
}

InfillFile read_file(const RequestFields& fields, const Json& file, std::size_t index) {
  const std::string where = fmt::format("input_extra[{}]", index);
  if (!file.is_object()) fields.refuse(where, "must be an object with a text");
  const RequestFields members(file, where + ".");
  return {members.string("filename").value_or("file"), members.required_string("text")};
}

}  // namespace

Json llama_settings(const SamplingParams& params) {
  return {
      {"seed", kNewSeed},
      {"temperature", params.temperature},
      {"dynatemp_range", 0.0},
      {"dynatemp_exponent", 1.0},
      {"top_k", params.top_k},
      {"top_p", params.top_p},
      {"min_p", params.min_p},
      {"top_n_sigma", -1.0},
      {"xtc_probability", 0.0},
      {"xtc_threshold", 0.1},
      {"typical_p", params.typical_p},
      {"repeat_last_n", params.penalty_window},
      {"repeat_penalty", params.repetition_penalty},
      {"presence_penalty", params.presence_penalty},
      {"frequency_penalty", params.frequency_penalty},
      {"dry_multiplier", 0.0},
      {"mirostat", 0},
      {"adaptive_target", -1.0},
      {"adaptive_decay", 0.0},
      {"max_tokens", -1},
      {"n_predict", -1},
      {"n_keep", 0},
      {"n_discard", 0},
      {"ignore_eos", false},
      {"stream", false},
      {"n_probs", 0},
      {"min_keep", 0},
      {"samplers", Json::array({"penalties", "temperature", "top_k", "top_p", "min_p", "typ_p"})},
      {"timings_per_token", false},
      {"post_sampling_probs", false},
      {"lora", Json::array()}};
}

LlamaRequest read_llama_request(const Json& body, const Tokenizer& tokenizer,
                                const SamplingParams& defaults) {
  const RequestFields fields(body);
  LlamaRequest request = read_common(fields, tokenizer, defaults);
  request.generation.prompts = read_prompts(fields, tokenizer);
  add_texts(tokenizer, request);
  return request;
}

LlamaRequest read_infill_request(const Json& body, const Tokenizer& tokenizer,
                                 const SamplingParams& defaults) {
  const RequestFields fields(body);
  InfillParts parts{.prefix = fields.required_string("input_prefix"),
                    .suffix = fields.required_string("input_suffix"),
                    .begun = fields.string("prompt").value_or("")};
  if (const Json* extra = fields.array("input_extra")) {
    for (std::size_t i = 0; i < extra->size(); ++i)
      parts.files.push_back(read_file(fields, (*extra)[i], i));
  }
  LlamaRequest request = read_common(fields, tokenizer, defaults);
  auto prompt = naming("input_prefix", [&] { return infill_prompt(tokenizer, parts); });
  if (!prompt) {
    throw HttpError(
        501, "not_supported_error",
        "this model has no tokens for infilling: none of its control tokens is known to "
        "stand before a prefix, a suffix and the middle");
  }
  request.generation.prompts = {std::move(prompt->tokens)};
  request.generation.end_tokens = std::move(prompt->ends);
  add_texts(tokenizer, request);
  return request;
}

}  // namespace moeflux
