#include "cli/options/sampling_options.h"

#include <limits>
#include <random>

#include "base/error.h"
#include "base/text.h"

namespace moeflux::cli {
namespace {

template <class Given, class Value>
void set(SamplingParams& params, Value SamplingParams::*field, const char* option,
         const std::optional<Given>& given) {
  try {
    params.set(field, given);
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", option, error.what()));
  }
}

std::pair<TokenId, float> parse_bias(const std::string& text) {
  if (const std::size_t equals = text.find('='); equals != std::string::npos) {
    const auto id = to_number<TokenId>(text.substr(0, equals));
    const auto value = to_number<float>(text.substr(equals + 1));
    if (id && value) return {*id, *value};
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

void apply_sampling(const SamplingOptions& options, SamplingParams& params) {
  if (options.top_k && (*options.top_k < -1 || *options.top_k > std::numeric_limits<int>::max())) {
    throw UsageError("--top-k must be -1 or more (0 or -1: all)");
  }
  set(params, &SamplingParams::temperature, "--temp", options.temperature);
  set(params, &SamplingParams::top_k, "--top-k", options.top_k);
  set(params, &SamplingParams::top_p, "--top-p", options.top_p);
  set(params, &SamplingParams::min_p, "--min-p", options.min_p);
  set(params, &SamplingParams::typical_p, "--typical", options.typical_p);
  set(params, &SamplingParams::repetition_penalty, "--repeat-penalty", options.repeat_penalty);
  set(params, &SamplingParams::presence_penalty, "--presence-penalty", options.presence_penalty);
  set(params, &SamplingParams::frequency_penalty, "--frequency-penalty", options.frequency_penalty);
  std::vector<std::pair<TokenId, float>> bias;
  for (const std::string& text : options.logit_bias) bias.push_back(parse_bias(text));
  if (!bias.empty()) {
    set(params, &SamplingParams::logit_bias, "--logit-bias", std::optional(std::move(bias)));
  }
}

SamplingParams resolve_sampling(const SamplingOptions& options, const ModelSource& source) {
  SamplingParams params =
      sampling_defaults(source.generation_config(), source.path() + "/generation_config.json");
  apply_sampling(options, params);
  const bool seed_given = options.seed && *options.seed >= 0;
  params.seed = seed_given ? static_cast<std::uint64_t>(*options.seed) : new_seed();
  return params;
}

}  // namespace moeflux::cli
