#include "cli/commands/trace.h"

#include <memory>

#include "cli/commands/commands.h"
#include "cli/options/model_argument.h"
#include "experts/eviction.h"

namespace moeflux::cli {
namespace {

void add_record_options(Command& command, TraceOptions& options) {
  command.group("trace record")
      .option("-p,--prompt", options.prompt, "TEXT", "a prompt to answer")
      .option("-f,--file", options.file, "FILE", "the prompt is all of a file (-: standard input)")
      .option("--prompts", options.prompts, "FILE", "answer each of a JSON list of texts")
      .option("--texts", options.texts, "FILE", "read each of a JSON list of texts, answer none")
      .option("-n,--predict", options.max_tokens, "N",
              "at most N tokens an answer (default: 128; 0: what the context holds)")
      .option("--chunk", options.chunk, "N",
              "tokens per pass over texts; 1: as if they were written (default: as many as fit)")
      .flag("--raw", options.raw, "continue plain text: no chat template")
      .option("--system", options.conversation.system, "TEXT", "system message");
  add_conversation_options(command, options.conversation);
}

void add_replay_options(Command& command, TraceOptions& options) {
  command.group("trace replay")
      .option("--policy", options.policies, "LIST",
              "policies to compare, or all (default): " + policy_names() + ", belady")
      .option("--sizes", options.sizes, "LIST",
              "sizes of the cache: 25% of the experts, 2G, or 300 experts")
      .option("--skip", options.skip, "N",
              "tokens, or %, that fill the cache and do not count (default: 20%)")
      .option("--bandwidth", options.bandwidth, "SIZE",
              "bytes a second of the disk: adds the tokens a second it allows")
      .option("--plot", options.plot, "FILE", "draw hit rate against size as SVG");
}

void add_synth_options(Command& command, TraceOptions& options) {
  command.group("trace synth")
      .option("--shape", options.shape, "LxExK",
              "layers, experts of each, experts of a token (default: 40x256x8)")
      .option("--tokens", options.n_tokens, "N", "tokens (default: 1000)")
      .option("--topic", options.topic, "N", "tokens until the topic changes (default: 250)")
      .option("--skew", options.skew, "X", "how unequal experts are; 0: not (default: 1)")
      .option("--locality", options.locality, "X",
              "how alike neighbouring tokens are; 0: not (default: 1)")
      .option("--record-size", options.record_size, "SIZE", "bytes of an expert (default: 1728K)");
}

}  // namespace

void add_trace_command(CommandLine& line) {
  const auto options = std::make_shared<TraceOptions>();
  Command& command = line.add("trace", "Record which experts a model uses; replay it on caches.");
  command.arguments("record [MODEL] [PROMPT...] | replay FILE | synth", SIZE_MAX);
  command.group("Options")
      .option("-o,--output", options->output, "FILE", "the trace that record and synth write")
      .flag("--json", options->json, "replay: print the results as JSON");
  add_record_options(command, *options);
  add_replay_options(command, *options);
  add_synth_options(command, *options);
  add_model_option(command, options->model);
  add_machine_options(command, options->model);
  add_sampling_options(command, options->sampling);
  add_general_options(command, options->general);
  command.example("trace record models/demo -o demo.trace \"Tell me a short story.\"")
      .example("trace replay demo.trace --policy lru,belady --sizes 10%,25%,50%")
      .example("trace synth -o large.trace --shape 60x512x10 -s 7")
      .example("trace replay large.trace --plot hits.svg --bandwidth 6G");
  add_model_argument_notes(command);
  command.note("Policies:");
  for (const PolicyInfo& policy : policy_list()) {
    command.note(fmt::format("  {:<12}{}", policy.name, policy.meaning));
  }
  command.note("  belady      knows the future: no policy can do better");
  command.run([options](const std::vector<std::string>& arguments) {
    const std::string action = arguments.empty() ? "" : arguments[0];
    const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1),
                                        arguments.end());
    if (action == "record") return record_trace(*options, rest);
    if (action == "replay") return replay_trace(*options, rest);
    if (action == "synth") return synthesize_trace(*options, rest);
    throw UsageError(action.empty()
                         ? "trace needs one of record, replay, synth"
                         : fmt::format("trace cannot \"{}\", only record, replay, synth", action),
                     "trace");
  });
}

}  // namespace moeflux::cli
