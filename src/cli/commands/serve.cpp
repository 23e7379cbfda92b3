// moeflux serve: answers over HTTP until it is told to stop.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/memory_budget.h"
#include "cli/build_info.h"
#include "cli/commands/commands.h"
#include "cli/options/environment.h"
#include "cli/options/general_options.h"
#include "cli/options/hub_options.h"
#include "cli/options/model_options.h"
#include "cli/prefix_session.h"
#include "cli/reports/server_log.h"
#include "cli/service_manager.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "engine/model_plan.h"
#include "server/dialects/errors.h"
#include "server/http/http_server.h"
#include "server/server_app.h"
#include "source/gguf.h"

namespace moeflux::cli {
namespace {

struct ServeOptions {
  ModelOptions model;
  GeneralOptions general;
  std::string host = "127.0.0.1";
  std::int64_t port = 9099;
  std::int64_t parallel = 2, queue = 64, checkpoints = 4, max_models = 1;
  std::vector<std::string> api_keys, cors_origins, hosts;
  std::optional<std::string> api_key_file, alias, max_body, tls_cert, tls_key;
  std::optional<std::string> log_level;
  std::string log_format = "text";
  std::string keep_alive = "5m";
  std::string prefix_store = "on";
  std::optional<std::string> prefix_size;
  double ping_seconds = 15, drain_seconds = 30;
  ServerMemory memory = {};  // of --ram, beside the engine; set by check_serve_options()
  RequestMemoryPtr request_memory = {};
  std::vector<int> sockets = {};  // of a service manager
  std::shared_ptr<const ServerLog> log = {};

  std::chrono::milliseconds drain_time() const;
};

std::int64_t in_range(std::int64_t value, std::int64_t min, std::int64_t max, const char* option) {
  if (value < min || value > max)
    throw UsageError(fmt::format("{} must be from {} to {}", option, min, max));
  return value;
}

std::chrono::milliseconds in_seconds(double seconds, double min, const char* option) {
  if (!(seconds >= min && seconds <= 86400))
    throw UsageError(fmt::format("{} must be from {} to 86400 seconds", option, min));
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

// One key per line; blank lines and those that begin with # are none.
std::vector<std::string> read_keys(const ServeOptions& options) {
  std::vector<std::string> keys = options.api_keys;
  if (options.api_key_file) {
    std::ifstream file(*options.api_key_file);
    if (!file) fail(Errc::Io, "{}: cannot be read", *options.api_key_file);
    for (std::string line; std::getline(file, line);) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (!line.empty() && line[0] != '#') keys.push_back(line);
    }
    if (keys.empty()) fail(Errc::BadInput, "{}: there is no key in it", *options.api_key_file);
  }
  for (const std::string& key : keys) {
    if (key.empty()) throw UsageError("--api-key must not be empty");
  }
  return keys;
}

std::string model_name(const ServeOptions& options, const std::string& path) {
  if (options.alias) return *options.alias;
  std::filesystem::path name = std::filesystem::path(path).lexically_normal();
  if (name.filename().empty()) name = name.parent_path();
  return name.filename().empty() ? "model" : gguf_model_name(name.filename().string());
}

void add_network_options(Command& command, ServeOptions& options) {
  command.group("Network")
      .option("--host", options.host, "ADDRESS",
              "address to listen on, or a UNIX socket ending in .sock (default: 127.0.0.1)")
      .option("--port", options.port, "N", "0: any that is free (default: 9099)")
      .option("--tls-cert", options.tls_cert, "FILE",
              "speak HTTPS with this certificate (PEM, with those that vouch for it)")
      .option("--tls-key", options.tls_key, "FILE", "and its key (PEM, without a passphrase)")
      .option("--api-key", options.api_keys, "KEY", "ask for this key; repeatable")
      .env("MOEFLUX_API_KEY")
      .secret()
      .option("--api-key-file", options.api_key_file, "FILE", "keys, one per line")
      .option("--cors-origin", options.cors_origins, "URL",
              "let pages of this origin ask, such as http://localhost:3000; repeatable")
      .option("--allow-host", options.hosts, "NAME",
              "a name of this server besides localhost; repeatable")
      .option("--max-body", options.max_body, "SIZE", "largest request (default: 64M)")
      .option("--ping-seconds", options.ping_seconds, "S",
              "silence in a stream before it is broken by a comment (default: 15)")
      .option("--drain-seconds", options.drain_seconds, "S",
              "time for answers to end after SIGTERM (default: 30)");
}

void add_request_options(Command& command, ServeOptions& options) {
  command.group("Requests")
      .option("--alias", options.alias, "NAME",
              "how clients see the model (default: the name of its directory)")
      .option("--parallel", options.parallel, "N",
              "answers at the same time; each has a context of its own (default: 2)")
      .option("--queue", options.queue, "N", "requests that may wait (default: 64)")
      .option("--checkpoints", options.checkpoints, "N",
              "places of a context that can be gone back to (default: 4)")
      .option("--prefix-store", options.prefix_store, "WHERE",
              "keep what was read on disk: on, off or a directory (default: on)")
      .option("--prefix-size", options.prefix_size, "SIZE",
              fmt::format("what the store may take of the disk (default: {})",
                          format_bytes(PrefixStoreOptions().max_bytes)));
}

void add_log_options(Command& command, ServeOptions& options) {
  command.group("Log (on standard error, one line for each request)")
      .option("--log-format", options.log_format, "FORMAT", "text or json (default: text)")
      .choices({"text", "json"})
      .option("--log-level", options.log_level, "LEVEL",
              "error, warning, info or debug (default: info; -q error, -v debug)")
      .choices({"error", "warning", "info", "debug"});
}

// Remarks of the program go there, too.
void open_log(ServeOptions& options) {
  const bool is_json = options.log_format == "json";
  LogLevel level = options.general.verbose ? LogLevel::Debug : LogLevel::Info;
  if (options.general.quiet) level = LogLevel::Error;
  if (options.log_level) level = parse_log_level(*options.log_level);
  const bool in_journal = !is_json && !stderr_is_terminal() && environment_value("JOURNAL_STREAM");
  options.log = std::make_shared<ServerLog>(
      is_json ? ServerLog::Format::Json : ServerLog::Format::Text, level, in_journal);
  if (!is_json && !in_journal && !options.log_level) return;  // as every command does
  options.general.say = [log = options.log](std::string_view text) {
    log->note(LogLevel::Info, text);
  };
}

KeepAlive parse_keep(const ServeOptions& options) {
  try {
    return parse_keep_alive(options.keep_alive);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--keep-alive: {}", error.what()));
  }
}

std::chrono::milliseconds ServeOptions::drain_time() const {
  return in_seconds(drain_seconds, 0, "--drain-seconds");
}

void add_serve_options(Command& command, ServeOptions& options) {
  add_network_options(command, options);
  add_request_options(command, options);
  add_log_options(command, options);
  add_model_option(command, options.model);
  command.group("Several models")
      .option("--max-models", options.max_models, "N",
              "models of --models in memory at the same time (default: 1)")
      .option("--keep-alive", options.keep_alive, "TIME",
              "how long an unused one stays: 5m, 1h, 0, or -1 for ever (default: 5m)");
  add_machine_options(command, options.model);
  options.model.draft = "auto";
  add_draft_option(command, options.model);
  add_general_options(command, options.general);
}

// All of these throw UsageError, which names the option.
// and fills in what the model options need
void check_serve_options(ServeOptions& options) {
  options.model.n_sessions = static_cast<int>(in_range(options.parallel, 1, 256, "--parallel"));
  options.model.n_checkpoints =
      static_cast<int>(in_range(options.checkpoints, 0, 256, "--checkpoints"));
  in_range(options.queue, 0, 100'000, "--queue");
  in_range(options.max_models, 1, 1000, "--max-models");
  if (options.host.empty()) throw UsageError("--host: needs an address, such as 127.0.0.1");
  if (options.tls_cert && !options.tls_key)
    throw UsageError("--tls-cert: needs --tls-key, the file with its key");
  if (options.tls_key && !options.tls_cert)
    throw UsageError("--tls-key: needs --tls-cert, the file with its certificate");
  parse_keep(options);
  options.drain_time();
  options.memory = server_memory(memory_ceiling(engine_options(options.model)),
                                 options.model.context.value_or(kDefaultContext));
  options.model.other_bytes = options.memory.total();
  options.request_memory = std::make_shared<RequestMemory>(options.memory.request_bytes);
}

HttpServerOptions server_options(const ServeOptions& options) {
  HttpServerOptions server;
  server.host = options.host;
  server.port = static_cast<int>(in_range(options.port, 0, 65535, "--port"));
  if (options.max_body) server.limits.body_bytes = parse_size(*options.max_body, "--max-body");
  server.memory = options.request_memory;
  server.sockets = options.sockets;
  if (options.tls_cert) server.tls = {*options.tls_cert, *options.tls_key};
  server.log = [log = options.log](const AccessRecord& record) { log->request(record); };
  server.limits.ping = in_seconds(options.ping_seconds, 0.1, "--ping-seconds");
  return server;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

// Whether only programs on this machine can ask.
bool is_private(const ServeOptions& options) {
  if (options.sockets.empty()) return is_loopback(options.host);
  return std::all_of(options.sockets.begin(), options.sockets.end(), [](int socket) {
    const std::string host = listening_host(socket);
    return host.empty() || is_loopback(host);
  });
}

ServerAppOptions app_options(const ServeOptions& options, const std::string& model_path) {
  ServerAppOptions app;
  app.model_id = model_name(options, model_path);
  app.version = program_version();
  app.build = build_json();
  app.api_keys = read_keys(options);
  app.cors_origins = options.cors_origins;
  app.hosts = options.hosts;
  app.hub = hub_settings;
  if (!is_private(options)) app.hosts.push_back("*");
  return app;
}

ServiceOptions service_options(const ServeOptions& options) {
  ServiceOptions service;
  service.n_parallel = static_cast<int>(options.parallel);
  service.max_waiting = static_cast<std::size_t>(options.queue);
  service.drafts = parse_drafts(options.model);
  service.memory = options.request_memory;
  service.grammar_bytes = options.memory.grammar_bytes;
  if (options.prefix_store == "off") return service;
  PrefixStoreOptions store;
  store.directory =
      options.prefix_store == "on" ? default_prefix_directory() : options.prefix_store;
  if (options.prefix_size) store.max_bytes = parse_size(*options.prefix_size, "--prefix-size");
  if (!store.directory.empty()) service.prefix_store = std::move(store);
  return service;
}

// of --models
PoolOptions pool_options(const ServeOptions& options) {
  PoolOptions pool;
  pool.directory = options.model.models.value_or("");
  pool.engine = engine_options(options.model);
  pool.engine.other_bytes = options.memory.grammar_bytes;  // of each model
  pool.other_bytes = options.memory.request_bytes;
  pool.service = service_options(options);
  pool.max_models = static_cast<int>(options.max_models);
  pool.keep_alive = parse_keep(options);
  pool.max_waiting = static_cast<std::size_t>(options.queue);
  return pool;
}

std::string describe_memory(const MemoryPlan& plan, std::uint64_t for_requests) {
  return fmt::format(
      "memory: {} of {}: {} dense, {} context, {} passes, {} requests, {} experts ({} of {} at a "
      "time)",
      format_bytes(plan.used_bytes()), format_bytes(plan.ceiling), format_bytes(plan.dense_bytes),
      format_bytes(plan.context_bytes), format_bytes(plan.scratch_bytes()),
      format_bytes(for_requests), format_bytes(plan.cache_bytes), plan.n_slots, plan.max_slots);
}

void note_ready(const Engine& engine, const std::string& name, const std::string& url,
                const ServeOptions& options) {
  options.general.note(describe_memory(engine.plan(), options.memory.request_bytes));
  const std::string ready = fmt::format("ready: {} at {}/v1, context {} tokens, {} at a time", name,
                                        url, engine.context_length(), options.parallel);
  options.general.note(ready);
  notify_ready(ready);
}

void note_stopping(std::size_t n_answers, const ServeOptions& options) {
  notify_stopping();
  if (n_answers == 0) return;
  options.general.note(
      fmt::format("stopping: {} answers have {} seconds to end", n_answers, options.drain_seconds));
}

// Listens before any model is there: whoever asks is told, or waits.
class Listening {
 public:
  Listening(ServerApp& app, const ServeOptions& options)
      : server_(
            server_options(options),
            [&app](HttpRequest request, ExchangePtr exchange) {
              app.handle(std::move(request), exchange);
            },
            error_by_path) {
    app.set_connection_count([this] { return server_.n_connections(); });
    app.models().set_workers([this](std::function<void()> work) { server_.post(std::move(work)); });
    for (const std::string& url : server_.urls())
      options.general.note(fmt::format("listening on {}", url));
    notify_status("loading the model");
    const std::string warning = server_.certificate_warning();
    if (!warning.empty()) options.log->note(LogLevel::Warning, warning);
    if (!is_private(options) && server_.port() > 0 && app.options().api_keys.empty())
      options.general.note("anybody who reaches this machine may use it: set --api-key");
  }
  HttpServer& server() { return server_; }

 private:
  HttpServer server_;
};

// A context that nobody asked for gives way to a small ceiling.
ModelOptions with_fitting_context(const ServeOptions& options, const std::string& model) {
  ModelOptions fitting = options.model;
  const std::int64_t context = fitting_context(model, engine_options(options.model));
  if (context > 0) fitting.context = context;
  return fitting;
}

int serve_one(const ServeOptions& options, const std::string& model) {
  const ServiceOptions for_service = service_options(options);
  const ModelOptions with_context = with_fitting_context(options, model);
  std::unique_ptr<Engine> engine;  // outlives all that follows
  ServerApp app(app_options(options, model));
  std::shared_ptr<GenerationService> service;
  Listening listening(app, options);
  HttpServer& server = listening.server();
  {
    const InterruptGuard guard;
    engine = open_engine(model, with_context, options.general);
  }
  service = std::make_shared<GenerationService>(*engine, for_service);
  const StopSignals signals;
  app.set_service(service);
  note_ready(*engine, app.options().model_id, server.url(), options);
  signals.wait();

  // Lets answers come to their end, then ends what is left.
  server.drain();
  const SchedulerStats stats = service->stats();
  note_stopping(stats.n_running + stats.n_waiting, options);
  service->drain(options.drain_time());
  service->stop();
  server.wait_until_empty(std::chrono::seconds(2));
  save_profile(*engine, options.general);
  return kSuccess;
}

// What is said of models that come and go, by the thread that loads them.
class PoolNotes {
 public:
  explicit PoolNotes(const ServeOptions& options) : options_(options) {}

  void set_url(std::string url) {
    const std::lock_guard lock(mutex_);
    url_ = std::move(url);
  }

  LoadProgress progress() {
    return [this](std::uint64_t done, std::uint64_t total) {
      if (bar_)
        bar_->update(done, total, fmt::format("{} of {}", format_bytes(done), format_bytes(total)));
    };
  }
  PoolEvents events() {
    return {.loading =
                [this](const CatalogEntry& entry) {
                  bar_.emplace(fmt::format("loading {}", entry.name),
                               options_.general.show_progress());
                },
            .loaded = [this](const LoadedModel& model) { loaded(model); },
            .unloaded =
                [this](const CatalogEntry& entry) {
                  options_.general.note(fmt::format("unloaded {}", entry.name));
                },
            .warning =
                [this](const std::string& text) {
                  bar_.reset();
                  options_.general.note(text);
                }};
  }

 private:
  void loaded(const LoadedModel& model) {
    bar_.reset();
    if (!model.engine().profile_warning().empty())
      options_.general.note(model.engine().profile_warning());
    const std::lock_guard lock(mutex_);
    note_ready(model.engine(), model.entry().name, url_, options_);
  }

  const ServeOptions& options_;
  std::mutex mutex_;
  std::string url_;
  std::optional<ProgressBar> bar_;
};

void note_models(const std::vector<CatalogEntry>& models, const ServeOptions& options) {
  std::size_t n_fine = 0;
  for (const CatalogEntry& each : models) {
    if (each.problem.empty())
      ++n_fine;
    else
      options.general.note(fmt::format("{} is left out: {}", each.name, each.problem));
  }
  options.general.note(fmt::format("models: {} in {}, loaded when they are asked for", n_fine,
                                   *options.model.models));
  notify_ready(fmt::format("{} models, loaded when they are asked for", n_fine));
  if (n_fine == 0) options.general.note("there is nothing to serve until a model is put there");
}

int serve_several(const ServeOptions& options) {
  PoolNotes notes(options);
  PoolOptions for_pool = pool_options(options);
  for_pool.engine.progress = notes.progress();
  ModelPool pool(std::move(for_pool), notes.events());
  const std::vector<CatalogEntry> models = pool.models();  // throws where there is no directory
  ServerApp app(app_options(options, ""));
  app.models().set_pool(pool);
  const StopSignals signals;
  Listening listening(app, options);
  HttpServer& server = listening.server();
  notes.set_url(server.url());
  note_models(models, options);
  signals.wait();

  server.drain();
  std::size_t n_answers = 0;
  for (const PoolModel& each : pool.loaded()) {
    const SchedulerStats stats = each.lease.service->stats();
    n_answers += stats.n_running + stats.n_waiting;
  }
  note_stopping(n_answers, options);
  pool.drain(options.drain_time());
  pool.stop();
  server.wait_until_empty(std::chrono::seconds(2));
  return kSuccess;
}

// One model where one is named; --models on the command line says more than a default.
bool wants_several(const ServeOptions& options, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& given) {
  if (!options.model.models || options.model.model || !arguments.empty()) return false;
  return !options.model.default_model ||
         std::find(given.begin(), given.end(), "--models") != given.end();
}

}  // namespace

void add_serve_command(CommandLine& line) {
  const auto options = std::make_shared<ServeOptions>();
  Command& command = line.add("serve", "Answer over HTTP, as the OpenAI API does.");
  command.arguments("[MODEL]", 1);
  add_serve_options(command, *options);
  command.example("serve")
      .example("serve /data/qwen --ram 16G --port 8080")
      .example("serve --models /data/models --max-models 2 --keep-alive 30m")
      .example("serve --host 0.0.0.0 --api-key-file keys.txt --parallel 4")
      .example("serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --api-key-file keys.txt")
      .example("serve --host /run/user/1000/moeflux.sock");
  command.note("A browser finds a web page at the same address: chats, and the engine at work.")
      .note("GET /health answers 503 while the model is loaded and 200 afterwards.")
      .note("With --models and no MODEL, each is loaded when a request names it.")
      .note("Started by a systemd socket, it answers on that instead of --host and --port.")
      .note("SIGTERM or Ctrl-C lets answers come to their end, a second one ends at once.");
  command.run([options, &command](const std::vector<std::string>& arguments) {
    check_serve_options(*options);
    keep_heap_small();
    open_log(*options);
    try {
      options->sockets = inherited_sockets();
      if (wants_several(*options, arguments, command.given())) return serve_several(*options);
      return serve_one(*options, only_model(options->model, arguments));
    } catch (const Error& error) {
      if (options->log->format() == ServerLog::Format::Text || error.code() == Errc::Cancelled)
        throw;
      options->log->note(LogLevel::Error, error.what());
      return kFailure;
    }
  });
}

}  // namespace moeflux::cli
