#include "server/dialects/request_fields.h"

#include <cmath>

#include <fmt/format.h>

#include "base/text.h"
#include "server/http/request_memory.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxStops = 64, kMaxStopBytes = 4096;

float read_bias(const RequestFields& fields, const Json& value) {
  if (value.is_boolean() && !value.get<bool>()) return -std::numeric_limits<float>::infinity();
  if (!value.is_number()) fields.refuse("logit_bias", "must have numbers for its values");
  const auto bias = value.get<double>();
  if (!(std::abs(bias) <= 100)) fields.refuse("logit_bias", "has a value outside of -100 to 100");
  return static_cast<float>(bias);
}

using Biases = std::vector<std::pair<TokenId, float>>;

void add_bias(const RequestFields& fields, const Tokenizer* tokenizer, const std::string& name,
              float bias, Biases& biases) {
  if (const auto id = to_number<TokenId>(name)) {
    biases.emplace_back(*id, bias);
  } else if (tokenizer == nullptr) {
    fields.refuse("logit_bias",
                  fmt::format("names the token \"{}\", which is no number", name.substr(0, 80)));
  } else {
    for (const TokenId each : naming("logit_bias", [&] { return tokenizer->encode_data(name); }))
      biases.emplace_back(each, bias);
  }
}

// {"42": -1.5}, or [[42, -1.5], [43, false]]; with a tokenizer also texts for tokens.
Biases read_logit_bias(const RequestFields& fields, const Tokenizer* tokenizer) {
  Biases biases;
  const Json* given = fields.find("logit_bias");
  if (given == nullptr) return biases;
  if (given->is_object()) {
    for (const auto& [key, value] : given->items())
      add_bias(fields, tokenizer, key, read_bias(fields, value), biases);
    return biases;
  }
  if (!given->is_array()) fields.refuse("logit_bias", "must map tokens to numbers");
  for (const Json& pair : *given) {
    const bool is_pair = pair.is_array() && pair.size() == 2;
    if (!is_pair || !(pair[0].is_number_integer() || (tokenizer != nullptr && pair[0].is_string())))
      fields.refuse("logit_bias", "must be a list of [token, number]");
    const std::string name = pair[0].is_string() ? pair[0].get<std::string>() : pair[0].dump();
    add_bias(fields, tokenizer, name, read_bias(fields, pair[1]), biases);
  }
  return biases;
}

}  // namespace

Json parse_body(const HttpRequest& request) {
  if (request.body.empty()) throw bad_request("the request has no body; a JSON object is expected");
  if (request.memory) request.memory->grow(body_price(request.body), kMemoryPatience);
  try {
    Json body = parse_json(request.body, "body");
    if (body.is_object()) return body;
  } catch (const Error& error) {
    throw bad_request(error.what());
  }
  throw bad_request("the body must be a JSON object");
}

void RequestFields::refuse(std::string_view name, const std::string& why) const {
  const std::string full = prefix_ + std::string(name);
  throw bad_request(fmt::format("{} {}", full, why), full);
}

void RequestFields::refuse_value(std::string_view name, const std::string& value,
                                 std::string_view known) const {
  refuse(name, fmt::format("is \"{}\", but must be {}", value.substr(0, 80), known));
}

const Json* RequestFields::find(std::string_view name) const {
  const auto found = object_.find(std::string(name));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json* RequestFields::find(std::string_view name, bool (Json::*is_kind)() const,
                                const char* kind) const {
  const Json* value = find(name);
  if (value != nullptr && !(value->*is_kind)()) refuse(name, fmt::format("must be {}", kind));
  return value;
}

const Json& RequestFields::present(std::string_view name, const Json* value) const {
  if (value == nullptr) refuse(name, "is missing");
  return *value;
}

std::optional<std::int64_t> RequestFields::integer(std::string_view name, std::int64_t min,
                                                   std::int64_t max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<std::int64_t> given;
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX)
    given = INT64_MAX;
  else if (value->is_number_integer())
    given = value->get<std::int64_t>();
  else if (value->is_number_float() && std::abs(value->get<double>()) < 1e15 &&
           std::trunc(value->get<double>()) == value->get<double>())
    given = static_cast<std::int64_t>(value->get<double>());  // some clients write 16.0
  if (!given) refuse(name, "must be an integer");
  if (*given < min || *given > max) {
    refuse(name, max == INT64_MAX
                     ? fmt::format("is {}, but must be at least {}", *given, min)
                     : fmt::format("is {}, but must be from {} to {}", *given, min, max));
  }
  return given;
}

std::optional<RequestFields> RequestFields::inner(std::string_view name) const {
  const Json* value = object(name);
  if (value == nullptr) return std::nullopt;
  return RequestFields(*value, fmt::format("{}{}.", prefix_, name));
}

SamplingChanges read_sampling(const RequestFields& fields, const Tokenizer* tokenizer) {
  SamplingChanges changes;
  changes.temperature = fields.number("temperature");
  changes.top_p = fields.number("top_p");
  changes.top_k = fields.integer("top_k");
  changes.min_p = fields.number("min_p");
  changes.typical_p = fields.number("typical_p");
  changes.repetition_penalty = fields.number("repetition_penalty");
  if (!changes.repetition_penalty) changes.repetition_penalty = fields.number("repeat_penalty");
  changes.presence_penalty = fields.number("presence_penalty");
  changes.frequency_penalty = fields.number("frequency_penalty");
  changes.logit_bias = read_logit_bias(fields, tokenizer);
  if (const auto seed = fields.integer("seed"); seed && *seed >= 0)
    changes.seed = static_cast<std::uint64_t>(*seed);
  return changes;
}

std::optional<bool> read_continues(const RequestFields& fields) {
  const auto continues = fields.boolean("continue_final_message");
  const auto prompts = fields.boolean("add_generation_prompt");
  if (continues.value_or(false) && prompts.value_or(false))
    fields.refuse("continue_final_message", "and add_generation_prompt exclude each other");
  if (!continues && prompts.value_or(false)) return false;
  return continues;
}

std::vector<std::string> read_stop(const RequestFields& fields, std::string_view name) {
  const Json* given = fields.find(name);
  std::vector<std::string> stops;
  if (given == nullptr) return stops;
  const auto add = [&](const Json& stop) {
    if (!stop.is_string()) fields.refuse(name, "must be a string or a list of strings");
    stops.push_back(stop.get<std::string>());
    if (stops.back().empty() || stops.back().size() > kMaxStopBytes)
      fields.refuse(name, fmt::format("must have strings of 1 to {} bytes", kMaxStopBytes));
  };
  if (given->is_array()) {
    for (const Json& stop : *given) add(stop);
  } else {
    add(*given);
  }
  if (stops.size() > kMaxStops) fields.refuse(name, fmt::format("has more than {}", kMaxStops));
  return stops;
}

}  // namespace moeflux
