// moeflux trace synth: a made-up trace of a model of any size.
#include <charconv>

#include "base/error.h"
#include "cli/commands/trace.h"
#include "experts/synthetic_trace.h"

namespace moeflux::cli {
namespace {

void parse_shape(const std::string& text, SyntheticTraceOptions& options) {
  const char* at = text.data();
  const char* end = at + text.size();
  int* const sizes[] = {&options.n_layers, &options.n_experts, &options.top_k};
  for (int i = 0; i < 3; ++i) {
    const auto result = std::from_chars(at, end, *sizes[i]);
    const bool last = i == 2;
    if (result.ec != std::errc() || (last ? result.ptr != end : result.ptr == end) ||
        (!last && *result.ptr != 'x')) {
      throw UsageError(fmt::format("--shape: \"{}\" is not LAYERSxEXPERTSxTOP_K", text), "trace");
    }
    at = last ? result.ptr : result.ptr + 1;
  }
}

int bounded(std::int64_t value, const char* option) {
  if (value < 1 || value > 1'000'000) {
    throw UsageError(fmt::format("{} must be from 1 to 1000000", option), "trace");
  }
  return static_cast<int>(value);
}

}  // namespace

int synthesize_trace(const TraceOptions& options, const std::vector<std::string>& arguments) {
  if (!options.output) throw UsageError("-o FILE is missing", "trace");
  if (!arguments.empty()) {
    throw UsageError(fmt::format("trace synth takes no argument \"{}\"", arguments[0]), "trace");
  }
  SyntheticTraceOptions synthetic;
  parse_shape(options.shape, synthetic);
  synthetic.n_tokens = bounded(options.n_tokens, "--tokens");
  synthetic.topic_tokens = bounded(options.topic, "--topic");
  synthetic.skew = options.skew;
  synthetic.locality = options.locality;
  synthetic.record_bytes = parse_size(options.record_size, "--record-size");
  synthetic.seed = static_cast<std::uint64_t>(options.sampling.seed.value_or(1));
  const Trace trace = make_synthetic_trace(synthetic);
  write_trace(*options.output, trace);
  options.general.note(
      fmt::format("{}: {}, {} tokens", *options.output, trace.info().model, trace.n_tokens()));
  return kSuccess;
}

}  // namespace moeflux::cli
