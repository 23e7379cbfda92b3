#include "cli/sampling_options.h"

#include <charconv>
#include <limits>
#include <random>

#include "base/error.h"

namespace moeflux::cli {
namespace {

template <class From, class To>
void override_with(const std::optional<From>& given, To& value) {
  if (given) value = static_cast<To>(*given);
}

std::pair<TokenId, float> parse_bias(const std::string& text) {
  const std::size_t equals = text.find('=');
  TokenId id = 0;
  float value = 0;
  const char* end = text.data() + text.size();
  if (equals != std::string::npos) {
    const char* middle = text.data() + equals;
    const auto id_end = std::from_chars(text.data(), middle, id);
    const auto value_end = std::from_chars(middle + 1, end, value);
    if (id_end.ec == std::errc() && id_end.ptr == middle && value_end.ec == std::errc() &&
        value_end.ptr == end) {
      return {id, value};
    }
  }
  throw UsageError(
      fmt::format("--logit-bias: \"{}\" is not ID=VALUE, such as 42=-1.5 or 42=-inf", text));
}

// Short enough to be typed again.
std::uint64_t new_seed() {
  return std::random_device()() & 0xFFFFFFFFu;
}

}  // namespace

void add_sampling_options(Command& command, SamplingOptions& options) {
  command.group("Sampling (defaults: the model's generation_config.json)")
      .option("--temp", options.temperature, "T",
              "temperature; 0 always takes the most likely token")
      .option("--top-k", options.top_k, "K", "keep the K most likely tokens (0: all)")
      .option("--top-p", options.top_p, "P",
              "keep the fewest tokens that hold probability P (1: all)")
      .option("--min-p", options.min_p, "P",
              "drop tokens less likely than P times the most likely (0: none)")
      .option("--typical", options.typical_p, "P",
              "keep the most typical tokens that hold P (1: all)")
      .option("--repeat-penalty", options.repeat_penalty, "X",
              "divide the logits of tokens seen before (1: off)")
      .option("--presence-penalty", options.presence_penalty, "X",
              "subtract X from those in the answer (0: off)")
      .option("--frequency-penalty", options.frequency_penalty, "X",
              "the same, once per occurrence (0: off)")
      .option("--logit-bias", options.logit_bias, "ID=V",
              "add V to a token's logit; -inf forbids it; repeatable")
      .option("-s,--seed", options.seed, "N",
              "seed of the random numbers (default: a new one each time)");
}

SamplingParams resolve_sampling(const SamplingOptions& options, const ModelSource& source) {
  SamplingParams params =
      sampling_defaults(source.generation_config(), source.path() + "/generation_config.json");
  if (options.top_k && (*options.top_k < -1 || *options.top_k > std::numeric_limits<int>::max())) {
    throw UsageError("--top-k must be -1 or more (0 or -1: all)");
  }
  override_with(options.temperature, params.temperature);
  override_with(options.top_k, params.top_k);
  override_with(options.top_p, params.top_p);
  override_with(options.min_p, params.min_p);
  override_with(options.typical_p, params.typical_p);
  override_with(options.repeat_penalty, params.repetition_penalty);
  override_with(options.presence_penalty, params.presence_penalty);
  override_with(options.frequency_penalty, params.frequency_penalty);
  for (const std::string& bias : options.logit_bias) params.logit_bias.push_back(parse_bias(bias));
  const bool seed_given = options.seed && *options.seed >= 0;
  params.seed = seed_given ? static_cast<std::uint64_t>(*options.seed) : new_seed();
  params.validate();
  return params;
}

}  // namespace moeflux::cli
