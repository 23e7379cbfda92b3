// moeflux chat: a conversation in the terminal.
#include <algorithm>
#include <memory>

#include <unistd.h>

#include "base/error.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/local_backend.h"
#include "cli/chat/local_models.h"
#include "cli/chat/loop.h"
#include "cli/chat/server_backend.h"
#include "cli/commands/commands.h"
#include "cli/conversation.h"
#include "cli/options/environment.h"
#include "cli/options/model_options.h"
#include "cli/options/server_options.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "cli/terminal/text_input.h"

namespace moeflux::cli {
namespace {

struct ChatOptions {
  ServerOptions server;
  std::string model_name;  // of the server's
  ModelOptions model;
  SamplingOptions sampling;
  PrefixOptions prefix;
  GeneralOptions general;
  std::optional<std::string> system, kwargs;
  std::int64_t max_tokens = 0;
  bool no_think = false;
  std::string think = "fold";
  bool no_markdown = false, no_stats_line = false;
  bool resume = false, sessions = false, no_save = false;
  std::vector<std::string> tools, tool_files;
  bool no_ask = false;
  double tool_timeout = ChatSettings().tool_timeout;
  std::int64_t max_calls = 16;
};

// Where chats are kept; empty when this user has no home.
std::string state_directory() {
  const auto& home = environment().state_home;
  return home ? *home + "/moeflux" : "";
}

ChatSettings make_settings(const ChatOptions& options) {
  ChatSettings settings;
  settings.sampling = options.sampling;
  SamplingParams params;
  apply_sampling(options.sampling, params);
  if (options.max_tokens < 0) throw UsageError("--predict must be 0 (no limit) or more");
  settings.max_tokens = options.max_tokens;
  if (options.no_think) settings.thinking = false;
  settings.think = parse_think(options.think);
  settings.markdown = !options.no_markdown;
  settings.stats_line = !options.no_stats_line;
  if (!(options.tool_timeout > 0 && options.tool_timeout <= 86400))
    throw UsageError("--tool-timeout must be more than 0 seconds and at most 86400");
  settings.tool_timeout = options.tool_timeout;
  return settings;
}

ChatTools make_tools(const ChatOptions& options) {
  ChatTools tools;
  for (const std::string& name : options.tools) {
    if (name != "shell")
      throw UsageError(fmt::format("--tool: \"{}\" is not shell, the only one there is", name));
    tools.add_shell();
  }
  for (const std::string& path : options.tool_files) tools.add_file(path);
  if (options.max_calls < 1) throw UsageError("--max-calls must be at least 1");
  return tools;
}

ChatSession open_session(const ChatOptions& options, const ChatStore& store,
                         const std::vector<std::string>& names) {
  ChatSession session;
  session.name = store.new_name();
  if (!options.resume) return session;
  const auto name = names.empty() ? store.latest() : std::optional(names[0]);
  if (!name) fail(Errc::NotFound, "there is no conversation to resume");
  return store.load(names.empty() ? *name : store.resolve(*name));
}

std::vector<std::string> session_names(const ChatOptions& options,
                                       const std::vector<std::string>& words) {
  if (words.size() > (options.resume ? 1u : 0u)) {
    throw UsageError(
        fmt::format("\"{}\" is neither a model nor, after --resume, a conversation", words.back()));
  }
  return words;
}

// What has no meaning for a model that another program runs.
constexpr const char* kLocalOptions[] = {
    "--model",        "--models",      "--ctx-size",     "--threads",      "--ram",
    "--precision",    "--exact",       "--batch",        "--kv",           "--reader",
    "--cache-policy", "--lookahead",   "--draft",        "--preload",      "--no-profile",
    "--prefix-store", "--prefix-size", "--prefix-ahead", "--reads-at-once"};

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Whether a server answers. One that environment or files name is for chats that name no model.
bool uses_server(const ChatOptions& options, const std::vector<std::string>& given,
                 const std::vector<std::string>& arguments) {
  const bool names_model = arguments.size() > (options.resume ? 1u : 0u);
  if (!options.server.server ||
      (!has(given, "--server") && (names_model || has(given, "--model")))) {
    for (const char* name : {"--api-key", "--model-name"})
      if (has(given, name)) throw UsageError(fmt::format("{} needs --server URL", name));
    return false;
  }
  for (const char* name : kLocalOptions) {
    if (!has(given, name)) continue;
    throw UsageError(
        fmt::format("{}: that is for models of this program, and here the server {} has the model",
                    name, *options.server.server));
  }
  if (names_model) {
    throw UsageError(
        fmt::format("\"{}\": the server {} has the model; choose one of its own with --model-name",
                    arguments[0], *options.server.server));
  }
  return true;
}

// All of a chat but who answers.
struct Preparation {
  std::string state;  // directory; empty: none
  ChatStore store;
  ChatSettings settings;
  ChatTools tools;
  ChatSession session;
  Json variables;
};

// Before the model, which may take long to load.
Preparation prepare(const ChatOptions& options, const std::string& state,
                    const std::vector<std::string>& words) {
  const ChatStore all(state.empty() ? "" : state + "/sessions");
  if (options.system) check_utf8(*options.system, "--system");
  return {.state = state,
          .store = options.no_save ? ChatStore("") : all,
          .settings = make_settings(options),
          .tools = make_tools(options),
          .session = open_session(options, all, session_names(options, words)),
          .variables = options.kwargs ? parse_kwargs(*options.kwargs) : Json::object()};
}

void greet(const Chat& chat) {
  if (!chat.interactive() || chat.general.quiet) return;
  const std::int64_t n_context = chat.backend.context_length();
  const std::string line = fmt::format(
      "{}{}, session {}. /help lists commands.", safe_line(chat.backend.model()),
      n_context > 0 ? fmt::format(", context {} tokens", n_context) : "", chat.session.name);
  write_stdout(styled(line, Style::Dim, chat.general.color_on_stdout()) + "\n");
}

int talk(const ChatOptions& options, Preparation prepared, ChatBackend& backend) {
  if (options.system) prepared.session.set_system(*options.system, backend.model());
  const bool interactive = stdin_is_terminal() && stdout_is_terminal();
  const bool keeps_history = interactive && !prepared.state.empty() && !options.no_save;
  ChatHistory history(keeps_history ? prepared.state + "/history" : "");
  std::unique_ptr<LineSource> lines;
  if (interactive) {
    lines = std::make_unique<LineEditor>(history, slash_names(), options.general.color_on_stdout());
  } else {
    lines = std::make_unique<PlainLines>(STDIN_FILENO);
  }
  ToolRunner runner(prepared.tools, *lines, options.no_ask ? ToolConsent::Given : ToolConsent::Ask,
                    options.general.color_on_stdout());
  Chat state_of_chat{.backend = backend,
                     .lines = *lines,
                     .store = prepared.store,
                     .tools = prepared.tools,
                     .general = options.general,
                     .runner = runner,
                     .settings = prepared.settings,
                     .session = std::move(prepared.session),
                     .template_variables = prepared.variables,
                     .max_calls = options.max_calls};
  ChatLoop loop(state_of_chat);
  greet(state_of_chat);
  if (interactive && options.resume) loop.show_conversation();
  return loop.run();
}

int chat_with_server(const ChatOptions& options, Preparation prepared) {
  const HttpClient client = make_client(options.server);
  std::unique_ptr<ServerBackend> backend;
  {
    const InterruptGuard guard;
    backend =
        std::make_unique<ServerBackend>(client, options.model_name, [] { return interrupted(); });
  }
  return talk(options, std::move(prepared), *backend);
}

int chat_here(const ChatOptions& options, const std::string& model, Preparation prepared) {
  const DraftOptions drafts = parse_drafts(options.model);
  const auto find = [&](const std::string& name) {
    const auto path = find_named_model(options.model, name);
    if (!path) refuse_model(options.model, name);
    return *path;
  };
  const auto open = [&](const std::string& path) {
    return std::make_unique<LocalBackend>(open_engine(path, options.model, options.general),
                                          options.prefix, drafts);
  };
  const auto close = [&](LocalBackend& backend) {
    save_profile(backend.engine(), options.general);
  };
  std::unique_ptr<LocalModels> models;
  {
    const InterruptGuard guard;
    models = std::make_unique<LocalModels>(
        LocalModels::Opener{.find = find, .open = open, .close = close}, model);
  }
  return talk(options, std::move(prepared), *models);
}

// What is no model can only be the name of a conversation.
ModelArgument take_chat_model(const ChatOptions& options,
                              const std::vector<std::string>& arguments) {
  if (!options.model.model && !arguments.empty()) {
    if (const auto model = find_named_model(options.model, arguments[0]))
      return {*model, {arguments.begin() + 1, arguments.end()}};
    if (arguments.size() > (options.resume ? 1u : 0u)) refuse_model(options.model, arguments[0]);
  }
  return {default_model(options.model), arguments};
}

int chat(const ChatOptions& options, const std::vector<std::string>& given,
         const std::vector<std::string>& arguments) {
  const std::string state = state_directory();
  if (options.sessions) {
    const auto entries = ChatStore(state.empty() ? "" : state + "/sessions").list();
    write_stdout(entries.empty() ? "no conversation is saved yet\n"
                                 : session_list(entries, stdout_width()));
    return kSuccess;
  }
  if (uses_server(options, given, arguments))
    return chat_with_server(options, prepare(options, state, arguments));
  check_prefix_options(options.prefix);
  const auto [model, names] = take_chat_model(options, arguments);
  return chat_here(options, model, prepare(options, state, names));
}

}  // namespace

void add_chat_command(CommandLine& line) {
  const auto options = std::make_shared<ChatOptions>();
  Command& command = line.add("chat", "Talk with a model in the terminal.");
  command.arguments("[MODEL] [--resume [NAME]]", 2);
  command.group("Conversation")
      .option("--system", options->system, "TEXT", "system message (also -sys)")
      .spelling("-sys", "--system")
      .flag("--resume", options->resume,
            "go on with the last conversation, with that NAME, or with the one of these words")
      .flag("--sessions", options->sessions, "list the conversations and end")
      .flag("--no-save", options->no_save, "keep neither the conversation nor the history")
      .option("--kwargs", options->kwargs, "JSON",
              "more variables for the template, as a JSON object");
  command.group("Answer")
      .option("-n,--predict", options->max_tokens, "N",
              "at most N tokens (default: 0, what the context holds)")
      .flag("--no-think", options->no_think,
            "enable_thinking=false: answer without reasoning first")
      .option("--think", options->think, "HOW",
              "thoughts: show, fold to one line, or hide (default: fold)")
      .flag("--no-markdown", options->no_markdown, "show what the model writes as it is")
      .flag("--no-stats-line", options->no_stats_line, "no line about speed after each answer");
  command.group("Tools")
      .option("--tool", options->tools, "NAME", "let the model call a tool: shell; repeatable")
      .option("--tool-file", options->tool_files, "FILE",
              "tools with commands of their own, see docs/CHAT.md; repeatable")
      .option("--tool-timeout", options->tool_timeout, "S",
              "seconds that a tool may take (default: 60)")
      .option("--max-calls", options->max_calls, "N", "rounds of tools in a turn (default: 16)")
      .flag("--no-ask", options->no_ask,
            "run tools without asking: only where nothing can be lost");
  add_server_options(command, options->server, "chat with a running server: http://HOST:PORT");
  command.option("--model-name", options->model_name, "NAME",
                 "which of the server's models (default: one in memory, else the first)");
  add_model_option(command, options->model);
  add_machine_options(command, options->model);
  options->model.draft = "auto";
  options->model.n_checkpoints = LocalBackend::kCheckpoints;
  add_draft_option(command, options->model);
  add_prefix_options(command, options->prefix);
  add_sampling_options(command, options->sampling);
  add_general_options(command, options->general);
  command.example("chat")
      .example("chat models/demo --system \"You are brief.\"")
      .example("chat --resume")
      .example("chat --tool shell --think show")
      .example("chat --server http://127.0.0.1:9099")
      .example("chat --no-think < questions.txt");
  command
      .note(
          "Each line is a message; several lines between \"\"\" and \"\"\" are one. /help in the "
          "chat lists its commands.")
      .note(
          "With --server the options of model, streaming and prefix store are the server's matter.")
      .note("Ctrl-C stops an answer, twice it ends the program (exit code 130).");
  command.run([options, &command](const std::vector<std::string>& arguments) {
    return chat(*options, command.given(), arguments);
  });
}

}  // namespace moeflux::cli
