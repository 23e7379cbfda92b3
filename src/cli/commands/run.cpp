// moeflux run: one answer to one prompt.
#include <memory>

#include "base/error.h"
#include "base/memory_budget.h"
#include "cli/commands/commands.h"
#include "cli/conversation.h"
#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "cli/options/sampling_options.h"
#include "cli/prefix_session.h"
#include "cli/reports/run_stats.h"
#include "cli/terminal/answer_printer.h"
#include "cli/terminal/channel_text.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/text_input.h"
#include "engine/generate.h"
#include "text/replies/reply_format.h"

namespace moeflux::cli {
namespace {

struct RunOptions {
  ModelOptions model;
  SamplingOptions sampling;
  ConversationOptions conversation;
  PrefixOptions prefix;
  GeneralOptions general;
  std::optional<std::string> prompt, file;
  std::int64_t max_tokens = 0;
  std::vector<std::string> stop;
  bool raw = false, special = false, ignore_end = false;
  bool json = false, stats = false;
};

bool reads_input(const ConversationOptions& options) {
  const auto is_input = [](const std::optional<std::string>& path) {
    return path && (*path == "-" || *path == "/dev/stdin");
  };
  return is_input(options.messages) || is_input(options.tools);
}

// "Summarise this", with what it is about piped in. It comes first: several questions about one
// text then have that as a common prefix, which is read once.
std::string with_piped_text(const RunOptions& options, const std::string& prompt) {
  const std::optional<std::string> text = piped_text(
      [&] { options.general.note("waiting for standard input to end; </dev/null leaves it out"); });
  if (!text) return prompt;
  options.general.note(
      fmt::format("{} of standard input go before the prompt", format_bytes(text->size())));
  return *text + "\n\n" + prompt;
}

std::optional<std::string> find_prompt(const RunOptions& options,
                                       const std::vector<std::string>& arguments) {
  std::vector<std::string> words = arguments;
  if (options.prompt) {
    if (!words.empty()) throw UsageError("prompt given twice: as an argument and with --prompt");
    words.push_back(*options.prompt);
  }
  // A conversation can stand by itself: standard input is then not asked for a prompt.
  if (options.conversation.messages && words.empty() && !options.file) return std::nullopt;
  const std::optional<std::string> prompt = find_text(words, options.file);
  if (!prompt)
    throw UsageError("no prompt: give one as an argument, with -f FILE, or on standard input");
  if (prompt->find_first_not_of(" \t\r\n") == std::string::npos)
    fail(Errc::BadInput, "the prompt is empty");
  const bool is_from_input =
      words.empty() && (!options.file || *options.file == "-" || *options.file == "/dev/stdin");
  return is_from_input || reads_input(options.conversation) ? prompt
                                                            : with_piped_text(options, *prompt);
}

struct Prompt {
  std::vector<TokenId> tokens;
  ReplyFormat format = ReplyFormat::Plain;  // of which a reply is read: channels, or none
  bool opens_thought = false;
  std::optional<ChatRequest> chat;  // of which it was made
};

Prompt encode_prompt(const Engine& engine, const RunOptions& options,
                     const std::optional<std::string>& text) {
  const Tokenizer& tokenizer = engine.tokenizer();
  if (options.raw) {
    return {tokenizer.with_special_tokens(options.special ? tokenizer.encode_markup(*text)
                                                          : tokenizer.encode_data(*text)),
            ReplyFormat::Plain, false, std::nullopt};
  }
  const ChatRequest chat = make_conversation(options.conversation, text);
  const MarkedText rendered = engine.chat_template(has_tools(chat)).render(chat);
  return {tokenizer.encode(rendered), format_of_prompt(rendered), prompt_opens_thought(rendered),
          chat};
}

PrefixPoints prefix_points(const Engine& engine, const Prompt& prompt) {
  if (!prompt.chat) return {.positions = {}, .answer_stays = true};  // a text may grow
  return find_prefix_points(engine.chat_template(has_tools(*prompt.chat)), engine.tokenizer(),
                            *prompt.chat, prompt.tokens);
}

// The answer as a client will send it back: without the thought.
void read_ahead(Engine& engine, Session& session, PrefixSession& prefix, const Prompt& prompt,
                const std::string& text) {
  ReplyOptions options;
  options.opens_thought = prompt.opens_thought;
  const std::string answer = parse_reply(prompt.format, options, text).content;
  prefix.read_ahead(session,
                    next_turn_prefix(engine.chat_template(has_tools(*prompt.chat)),
                                     engine.tokenizer(), *prompt.chat, answer),
                    [] { return interrupted(); });
}

void check_combination(const RunOptions& options) {
  if (options.raw && options.conversation.any()) {
    throw UsageError(
        "--raw completes plain text; it takes no --system, --messages, --tools, --kwargs or "
        "--no-think");
  }
  if (options.special && !options.raw) {
    throw UsageError(
        "--special needs --raw: in a chat, only the template may write control tokens");
  }
  if (options.max_tokens < 0) throw UsageError("--predict must be 0 (no limit) or more");
  parse_drafts(options.model);
  check_prefix_options(options.prefix);
  SamplingParams params;
  apply_sampling(options.sampling, params);
}

int run(const RunOptions& options, const std::vector<std::string>& arguments) {
  check_combination(options);
  const auto [model, words] = take_model(options.model, arguments);
  const std::optional<std::string> text = find_prompt(options, words);

  const InterruptGuard guard;
  const std::unique_ptr<Engine> engine = open_engine(model, options.model, options.general);
  const Prompt prompt = encode_prompt(*engine, options, text);
  AnswerRequest request;
  request.prompt = prompt.tokens;
  request.sampling = resolve_sampling(options.sampling, engine->source());
  request.max_tokens = options.max_tokens;
  request.stop = options.stop;
  if (prompt.chat)  // the end of a thought must be seen
    request.shown_special = special_marker_tokens(prompt.format, engine->tokenizer());
  request.ignore_end = options.ignore_end;
  if (options.model.draft.starts_with("mtp") && !engine->config().mtp)
    options.general.note("--draft mtp: the model has no head that predicts further tokens");
  options.general.detail(fmt::format("{}: {} on {}, context {}, prompt {} tokens, seed {}", model,
                                     engine->config().family, engine->backend().name(),
                                     engine->context_length(), request.prompt.size(),
                                     request.sampling.seed));

  // "mixtral" may have been meant as a model.
  if (!options.model.model && words == arguments && words.size() == 1 &&
      !is_plainly_text(words[0], /*more_follows=*/true))
    options.general.note(fmt::format("\"{}\" is the prompt: no model is called that", words[0]));
  const bool has_channels = prompt.format != ReplyFormat::Plain;
  AnswerPrinter printer(prompt.opens_thought && !has_channels, options.general.color_on_stdout());
  const Json tools = prompt.chat ? prompt.chat->tools : Json();
  ChannelText channels(prompt.format, prompt.opens_thought, tools);
  GenerateOptions generating;
  generating.drafts = parse_drafts(options.model);
  Session session = engine->new_session();
  PromptProgress progress(options.general.show_progress());
  const auto n_prompt = std::ssize(request.prompt);
  generating.events.cancelled = [&] {
    progress.update(session.length(), n_prompt);
    return interrupted();
  };
  generating.events.on_token = [&](TokenId, std::span<const float>) { progress.end(); };
  if (!options.json)
    generating.events.on_text = [&](std::string_view piece) {
      printer.write(has_channels ? channels.feed(piece) : piece);
    };
  PrefixSession prefix(*engine, options.prefix, options.conversation.messages.has_value());
  if (prefix.is_on()) {
    const PrefixPoints points = prefix_points(*engine, prompt);
    request.keep_at = points.positions;
    generating.sync = &prefix.sync();
    generating.keep_answer = points.answer_stays;
  }
  GenerateResult result = generate(*engine, session, request, generating);
  progress.end();
  const std::string text_as_written = result.text;
  if (has_channels) {
    ChannelText whole(prompt.format, prompt.opens_thought, tools);
    result.text = whole.feed(text_as_written);
    result.text += whole.finish();
  }

  save_profile(*engine, options.general);
  if (options.json) {
    Json json = result_json(*engine, request, result, options.stats);
    prefix.add_to(json, result.reused);
    write_stdout(dump_json(json) + "\n");
  } else {
    if (has_channels) printer.write(channels.finish());
    printer.finish();
  }
  if (result.reason == StopReason::ContextFull) {
    options.general.note(fmt::format("the context of {} tokens is full (raise it with -c)",
                                     engine->context_length()));
  }
  if (options.prefix.ahead && prefix.is_on() && prompt.chat &&
      result.reason == StopReason::EndToken)
    read_ahead(*engine, session, prefix, prompt, text_as_written);
  if (!prefix.warning().empty()) options.general.note(prefix.warning());
  if (options.stats && !options.json)
    write_stderr(stats_text(*engine, result) + prefix.text(result.reused, request.prompt.size()));
  return result.reason == StopReason::Cancelled ? kInterrupted : kSuccess;
}

}  // namespace

void add_run_command(CommandLine& line) {
  const auto options = std::make_shared<RunOptions>();
  Command& command = line.add("run", "Let a model answer a prompt.");
  command.arguments("[MODEL] [PROMPT...]", SIZE_MAX);
  command.group("Prompt")
      .option("-p,--prompt", options->prompt, "TEXT",
              "the prompt, when it should not be an argument")
      .option("-f,--file", options->file, "FILE", "the prompt is all of a file (-: standard input)")
      .option("--system", options->conversation.system, "TEXT", "system message (also -sys)")
      .spelling("-sys", "--system");
  add_conversation_options(command, options->conversation);
  command.flag("--raw", options->raw, "continue plain text: no chat template")
      .flag("--special", options->special, "with --raw: control tokens in the text count as such");
  command.group("Answer")
      .option("-n,--predict", options->max_tokens, "N",
              "at most N tokens (default: 0, what the context holds)")
      .option("--stop", options->stop, "TEXT", "end the answer where this text comes; repeatable")
      .flag("--ignore-eos", options->ignore_end, "go on past the model's own end of an answer")
      .flag("--json", options->json, "one JSON object: text, tokens, finish_reason, usage, timings")
      .flag("--stats", options->stats, "speed, memory and what each layer read and waited for");
  add_model_option(command, options->model);
  add_machine_options(command, options->model);
  options->model.draft = "auto";
  add_draft_option(command, options->model);
  add_prefix_options(command, options->prefix);
  add_sampling_options(command, options->sampling);
  add_general_options(command, options->general);
  command.example("run \"What is 12 + 30?\"")
      .example("run models/demo-mla --no-think \"What is the capital of Japan?\"")
      .example("run -m ~/models/Qwen3.5-35B-A3B --ram 6G -f question.txt --stats")
      .example("run \"What is wrong here?\" < build.log")
      .example("run --raw --temp 0.8 -s 7 -n 60 \"Once upon a time\"")
      .example("run --json \"Tell me a short story.\" | jq -r .text");
  add_model_argument_notes(command);
  command.note("Text on standard input goes before a prompt that is given otherwise.");
  command.note("Ctrl-C ends the answer (exit code 130), a second one the program.");
  command.run(options, run);
}

}  // namespace moeflux::cli
