#include "cli/commands/trace.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/options/model_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/text_input.h"
#include "engine/generate.h"
#include "engine/verify/evaluate.h"
#include "experts/eviction.h"
#include "experts/synthetic_trace.h"
#include "experts/trace.h"

namespace moeflux::cli {
namespace {

TraceInfo trace_info(const Engine& engine) {
  TraceInfo info;
  info.model = engine.path();
  const ExpertStore& store = engine.experts().store();
  for (int bank = 0; bank < store.n_banks(); ++bank) {
    std::uint64_t bytes = 0;
    for (int e = 0; e < store.n_experts(bank); ++e) bytes += store.read_bytes({bank, e});
    const auto n = static_cast<std::uint64_t>(store.n_experts(bank));
    info.layers.push_back({store.n_experts(bank), bytes / n});
  }
  for (const LayerSpec& layer : engine.config().layers) {
    if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn)) {
      info.top_k = std::max(info.top_k, moe->top_k);
    }
  }
  if (info.layers.empty()) {
    fail(Errc::BadInput, "{}: has no routed experts, so there is nothing to record", engine.path());
  }
  return info;
}

std::vector<TokenId> encode_prompt(const Engine& engine, const TraceOptions& options,
                                   const std::optional<std::string>& text) {
  const Tokenizer& tokenizer = engine.tokenizer();
  if (options.raw) return tokenizer.with_special_tokens(tokenizer.encode_data(*text));
  const ChatRequest chat = make_conversation(options.conversation, text);
  return tokenizer.encode(engine.chat_template(has_tools(chat)).render(chat));
}

// The prompts of a run, one after the other, each a conversation of its own.
std::vector<std::optional<std::string>> find_prompts(const TraceOptions& options,
                                                     std::vector<std::string> words) {
  if (options.prompt) words.push_back(*options.prompt);
  std::vector<std::optional<std::string>> prompts;
  if (options.prompts) {
    for (std::string& text : read_texts(*options.prompts)) prompts.emplace_back(std::move(text));
  }
  const bool alone = !options.prompts && !options.texts && !options.conversation.messages;
  if (!words.empty() || options.file || alone) prompts.push_back(find_text(words, options.file));
  if (alone && !prompts.back()) {
    throw UsageError("nothing to record: give a prompt, --prompts FILE or --texts FILE");
  }
  if (prompts.empty() && options.conversation.messages) prompts.emplace_back();
  return prompts;
}

void answer(Engine& engine, const TraceOptions& options, const std::optional<std::string>& prompt) {
  AnswerRequest request;
  request.prompt = encode_prompt(engine, options, prompt);
  request.sampling = resolve_sampling(options.sampling, engine.source());
  request.max_tokens = options.max_tokens;
  Session session = engine.new_session();
  generate(engine, session, request, {.events = {.cancelled = [] { return interrupted(); }}});
  throw_if_interrupted();
}

void read(Engine& engine, const TraceOptions& options, const std::string& text) {
  Session session = engine.new_session();
  const std::vector<TokenId> tokens = engine.tokenizer().encode_markup(text);
  std::span<const TokenId> left(tokens);
  left = left.first(std::min(left.size(), static_cast<std::size_t>(session.max_length())));
  const auto n_pass =
      static_cast<std::size_t>(options.chunk > 0 ? options.chunk : session.max_length());
  while (!left.empty()) {
    const std::size_t n = std::min(left.size(), n_pass);
    engine.prefill(session, left.first(n), [] { return interrupted(); });
    left = left.subspan(n);
  }
}

void record_all(Engine& engine, const TraceOptions& options,
                const std::vector<std::optional<std::string>>& prompts) {
  for (const auto& prompt : prompts) answer(engine, options, prompt);
  if (!options.texts) return;
  for (const std::string& text : read_texts(*options.texts)) read(engine, options, text);
}

// Runs prompts or texts through a model and writes down which experts its layers ask for.
int record_trace(const TraceOptions& options, const std::vector<std::string>& arguments) {
  if (!options.output) throw UsageError("-o FILE is missing");
  if (options.chunk < 0) throw UsageError("--chunk must be 0 (as many as fit) or more");
  if (options.max_tokens < 0) throw UsageError("--predict must be 0 (no limit) or more");
  if (directory_exists(*options.output)) {
    throw UsageError(fmt::format("-o {}: is a directory; give a file", *options.output));
  }
  const auto [model, words] = take_model(options.model, arguments);
  const auto prompts = find_prompts(options, words);
  const InterruptGuard guard;
  std::unique_ptr<TraceWriter> writer;  // outlives the engine that tells it of its requests
  const std::unique_ptr<Engine> engine = open_engine(model, options.model, options.general);
  writer = std::make_unique<TraceWriter>(*options.output, trace_info(*engine));
  engine->experts().add_observer(writer.get());
  const std::uint64_t n_before = engine->experts().stats().tokens;
  bool complete = true;
  try {
    record_all(*engine, options, prompts);
  } catch (const Error& error) {
    if (error.code() != Errc::Cancelled) throw;
    complete = false;  // what was recorded until then is worth keeping
  }
  writer->finish();
  options.general.note(fmt::format("{}: {} tokens{}", *options.output,
                                   engine->experts().stats().tokens - n_before,
                                   complete ? "" : " until it was interrupted"));
  return complete ? kSuccess : kInterrupted;
}

void parse_shape(const std::string& text, SyntheticTraceOptions& options) {
  const std::vector<std::string> parts = split(text, 'x');
  int* const sizes[] = {&options.n_layers, &options.n_experts, &options.top_k};
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    const auto size = parts.size() == 3 ? to_number<int>(parts[i]) : std::nullopt;
    if (!size) throw UsageError(fmt::format("--shape: \"{}\" is not LAYERSxEXPERTSxTOP_K", text));
    *sizes[i] = *size;
  }
}

int bounded(std::int64_t value, const char* option) {
  if (value < 1 || value > 1'000'000) {
    throw UsageError(fmt::format("{} must be from 1 to 1000000", option));
  }
  return static_cast<int>(value);
}

// A made-up trace of a model of any size.
int synthesize_trace(const TraceOptions& options, const std::vector<std::string>& arguments) {
  if (!options.output) throw UsageError("-o FILE is missing");
  if (!arguments.empty()) {
    throw UsageError(fmt::format("trace synth takes no argument \"{}\"", arguments[0]));
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
              "bytes a second of the drive: adds the tokens a second it allows")
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
                         : fmt::format("trace cannot \"{}\", only record, replay, synth", action));
  });
}

}  // namespace moeflux::cli
