// moeflux trace record: runs prompts or texts through a model and writes down which experts its
// layers ask for.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands/trace.h"
#include "cli/options/model_argument.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/text_input.h"
#include "engine/generate.h"
#include "engine/verify/evaluate.h"
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
    throw UsageError("nothing to record: give a prompt, --prompts FILE or --texts FILE", "trace");
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

}  // namespace

int record_trace(const TraceOptions& options, const std::vector<std::string>& arguments) {
  if (!options.output) throw UsageError("-o FILE is missing", "trace");
  if (options.chunk < 0) throw UsageError("--chunk must be 0 (as many as fit) or more", "trace");
  if (options.max_tokens < 0) throw UsageError("--predict must be 0 (no limit) or more", "trace");
  if (directory_exists(*options.output)) {
    throw UsageError(fmt::format("-o {}: is a directory; give a file", *options.output), "trace");
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

}  // namespace moeflux::cli
