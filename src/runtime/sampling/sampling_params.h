// What a request may ask of the sampler, and what a checkpoint ships as its defaults.
//
// A default-constructed SamplingParams is neutral: it draws from the model's own distribution
// (temperature 1, every filter and penalty off). Each "off" value below leaves the result bit for
// bit as if the step did not exist.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/token_id.h"

namespace moeflux {

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy, the most likely token (lowest id of equals); up to 1000
  int top_k = 0;             // keep the k most likely tokens; 0 or -1: off
  double top_p =
      1.0;  // keep the fewest most likely tokens that hold this mass; 1: off; 0: one token
  double min_p = 0.0;  // drop tokens less likely than this times the most likely one; 0: off
  double typical_p =
      1.0;  // keep the fewest most typical tokens that hold this mass; 1: off; above 0

  double repetition_penalty = 1.0;  // 0.01 to 100; counts prompt and generated tokens; 1: off
  double presence_penalty = 0.0;    // -2 to 2; counts generated tokens only; 0: off
  double frequency_penalty = 0.0;   // -2 to 2; counts generated tokens only; 0: off
  // The penalties see the last so many tokens; 0: none; -1: all, which is what repetition_penalty
  // means in a generation_config.json.
  int penalty_window = -1;

  // Added to the logit of each token; -infinity forbids the token. An id listed twice gets both.
  std::vector<std::pair<TokenId, float>> logit_bias = {};

  std::uint64_t seed = 0;

  // Throws Error(BadInput) that names the first parameter outside of its range. NaN is outside of
  // every range.
  void validate() const;

  // Takes over one value where it is given, as validate() allows it with all others neutral.
  template <class Given, class Value>
  void set(Value SamplingParams::*field, const std::optional<Given>& given) {
    if (!given) return;
    SamplingParams alone;
    alone.*field = static_cast<Value>(*given);
    alone.validate();
    this->*field = std::move(alone.*field);
  }
};

// The defaults of a checkpoint, from its generation_config.json ({} when it ships none).
// Absent fields are neutral: no key, no filter (so no implied top_k of 50). do_sample false means
// temperature 0, and the filters are still read, for a request that raises the temperature;
// do_sample absent means true, because a file that gives a temperature and no do_sample wants that
// temperature. A field of the wrong type or outside of its range is refused with `origin` and the
// field in the message.
SamplingParams sampling_defaults(const Json& generation_config, const std::string& origin);

}  // namespace moeflux
