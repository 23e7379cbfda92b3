#include "runtime/sampling/sampling_params.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <string_view>

#include "base/error.h"

namespace moeflux {
namespace {

// Written so that NaN fails.
void check_range(std::string_view name, double value, double min, double max,
                 std::string_view note) {
  if (value >= min && value <= max) return;
  fail(Errc::BadInput, "{} must be a number from {} to {}{}, but is {}", name, min, max, note,
       value);
}

void check_at_least_minus_one(std::string_view name, int value, std::string_view note) {
  if (value < -1) fail(Errc::BadInput, "{} must be -1 or more{}, but is {}", name, note, value);
}

void check_bias(TokenId id, float bias) {
  if (id < 0 || id > kMaxTokenId) {
    fail(Errc::BadInput, "logit_bias: {} is not a token id (0 to {})", id, kMaxTokenId);
  }
  if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
    fail(Errc::BadInput, "logit_bias of token {} must be a finite number or -infinity, but is {}",
         id, bias);
  }
}

}  // namespace

void SamplingParams::validate() const {
  check_range("temperature", temperature, 0.0, 1000.0, " (0: greedy)");
  check_at_least_minus_one("top_k", top_k, " (0 or -1: off)");
  check_range("top_p", top_p, 0.0, 1.0, " (1: off)");
  check_range("min_p", min_p, 0.0, 1.0, " (0: off)");
  if (typical_p <= 0.0)
    fail(Errc::BadInput, "typical_p must be above 0 (1: off), but is {}", typical_p);
  check_range("typical_p", typical_p, 0.0, 1.0, " (1: off)");
  // The bounds keep a penalized logit an ordinary float; useful values are close to 1.
  check_range("repetition_penalty", repetition_penalty, 0.01, 100.0, " (1: off)");
  check_range("presence_penalty", presence_penalty, -2.0, 2.0, " (0: off)");
  check_range("frequency_penalty", frequency_penalty, -2.0, 2.0, " (0: off)");
  check_at_least_minus_one("penalty_window", penalty_window, " (-1: all tokens)");
  for (const auto& [id, bias] : logit_bias) check_bias(id, bias);
}

SamplingParams sampling_defaults(const Json& generation_config, const std::string& origin) {
  const JsonFields fields(generation_config, origin);
  SamplingParams params;
  params.temperature = fields.number_or("temperature", params.temperature);
  params.top_k = static_cast<int>(
      fields.integer_or("top_k", params.top_k, -1, std::numeric_limits<int>::max()));
  params.top_p = fields.number_or("top_p", params.top_p);
  params.min_p = fields.number_or("min_p", params.min_p);
  params.typical_p = fields.number_or("typical_p", params.typical_p);
  params.repetition_penalty = fields.number_or("repetition_penalty", params.repetition_penalty);
  params.presence_penalty = fields.number_or("presence_penalty", params.presence_penalty);
  params.frequency_penalty = fields.number_or("frequency_penalty", params.frequency_penalty);
  try {
    params.validate();
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", origin, error.what());
  }
  if (!fields.boolean_or("do_sample", true)) params.temperature = 0.0;
  return params;
}

}  // namespace moeflux
