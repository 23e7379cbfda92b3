// moeflux serve: answers over HTTP until it is told to stop.
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/build_info.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/general_options.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/prefix_session.h"
#include "cli/stop_signals.h"
#include "server/http_server.h"
#include "server/openai_errors.h"
#include "server/server_app.h"

namespace moeflux::cli {
namespace {

struct ServeOptions {
  ModelOptions model;
  GeneralOptions general;
  std::string host = "127.0.0.1";
  std::int64_t port = 9099;
  std::int64_t parallel = 2, queue = 64, checkpoints = 4;
  std::vector<std::string> api_keys, cors_origins, hosts;
  std::optional<std::string> api_key_file, alias, max_body;
  std::string prefix_store = "on";
  std::optional<std::string> prefix_size;
  double ping_seconds = 15, drain_seconds = 30;
};

std::int64_t in_range(std::int64_t value, std::int64_t min, std::int64_t max, const char* option) {
  if (value < min || value > max)
    throw UsageError(fmt::format("{} must be from {} to {}", option, min, max), "serve");
  return value;
}

std::chrono::milliseconds in_seconds(double seconds, double min, const char* option) {
  if (!(seconds >= min && seconds <= 86400))
    throw UsageError(fmt::format("{} must be from {} to 86400 seconds", option, min), "serve");
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
  if (keys.empty() && environment().api_key) keys.push_back(*environment().api_key);
  for (const std::string& key : keys) {
    if (key.empty()) throw UsageError("--api-key must not be empty", "serve");
  }
  return keys;
}

std::string model_name(const ServeOptions& options, const std::string& path) {
  if (options.alias) return *options.alias;
  std::filesystem::path name = std::filesystem::path(path).lexically_normal();
  if (name.filename().empty()) name = name.parent_path();
  return name.filename().empty() ? "model" : name.filename().string();
}

HttpServerOptions server_options(const ServeOptions& options) {
  HttpServerOptions server;
  server.host = options.host;
  server.port = static_cast<int>(in_range(options.port, 0, 65535, "--port"));
  if (options.max_body) {
    server.limits.body_bytes = parse_size(*options.max_body, "--max-body");
    server.limits.all_body_bytes = std::max(server.limits.all_body_bytes, server.limits.body_bytes);
  }
  server.limits.ping = in_seconds(options.ping_seconds, 0.1, "--ping-seconds");
  return server;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

ServerAppOptions app_options(const ServeOptions& options, const std::string& model) {
  ServerAppOptions app;
  app.model_id = model_name(options, model);
  app.version = program_version();
  app.api_keys = read_keys(options);
  app.cors_origins = options.cors_origins;
  app.hosts = options.hosts;
  if (!is_loopback(options.host)) app.hosts.push_back("*");
  return app;
}

ServiceOptions service_options(const ServeOptions& options) {
  ServiceOptions service;
  service.n_parallel = static_cast<int>(options.parallel);
  service.max_waiting = static_cast<std::size_t>(options.queue);
  service.drafts = parse_drafts(options.model);
  if (options.prefix_store == "off") return service;
  PrefixStoreOptions store;
  store.directory =
      options.prefix_store == "on" ? default_prefix_directory() : options.prefix_store;
  if (options.prefix_size) store.max_bytes = parse_size(*options.prefix_size, "--prefix-size");
  if (!store.directory.empty()) service.prefix_store = std::move(store);
  return service;
}

std::string describe_memory(const MemoryPlan& plan) {
  return fmt::format(
      "memory: {} of {}: {} dense, {} context, {} passes, {} experts ({} of {} at a time)",
      format_bytes(plan.used_bytes()), format_bytes(plan.ceiling), format_bytes(plan.dense_bytes),
      format_bytes(plan.context_bytes), format_bytes(plan.scratch_bytes),
      format_bytes(plan.cache_bytes()), plan.n_slots, plan.max_slots);
}

std::unique_ptr<Engine> load(const ServeOptions& options, const std::string& model) {
  const InterruptGuard guard;
  return open_engine(model, options.model, options.general);
}

// Lets answers come to their end, then ends what is left.
void shut_down(HttpServer& server, GenerationService& service, const ServeOptions& options) {
  server.drain();
  const SchedulerStats stats = service.stats();
  if (stats.n_running + stats.n_waiting > 0) {
    options.general.note(fmt::format("stopping: {} answers have {} seconds to end",
                                     stats.n_running + stats.n_waiting, options.drain_seconds));
  }
  service.drain(in_seconds(options.drain_seconds, 0, "--drain-seconds"));
  service.stop();
  server.wait_until_empty(std::chrono::seconds(2));
}

int run(ServeOptions options, const std::vector<std::string>& arguments) {
  const std::string model = only_model(options.model, arguments);
  options.model.n_sessions = static_cast<int>(in_range(options.parallel, 1, 256, "--parallel"));
  options.model.n_checkpoints =
      static_cast<int>(in_range(options.checkpoints, 0, 256, "--checkpoints"));
  in_range(options.queue, 0, 100'000, "--queue");
  in_seconds(options.drain_seconds, 0, "--drain-seconds");
  const ServiceOptions for_service = service_options(options);
  std::unique_ptr<Engine> engine;  // outlives all that follows
  ServerApp app(app_options(options, model));
  std::shared_ptr<GenerationService> service;
  // Listens before the model is there: whoever asks is told that it is being loaded.
  HttpServer server(
      server_options(options),
      [&app](HttpRequest request, ExchangePtr exchange) {
        app.handle(std::move(request), exchange);
      },
      openai_error);
  app.set_connection_count([&server] { return server.n_connections(); });
  options.general.note(fmt::format("listening on {}", server.url()));
  if (!is_loopback(options.host) && server.port() > 0 && app.options().api_keys.empty()) {
    options.general.note("anybody who reaches this machine may use it: set --api-key");
  }

  engine = load(options, model);
  service = std::make_shared<GenerationService>(*engine, for_service);
  const StopSignals signals;
  app.set_service(service);
  options.general.note(describe_memory(engine->plan()));
  options.general.note(fmt::format("ready: {} at {}/v1, context {} tokens, {} at a time",
                                   app.options().model_id, server.url(), engine->context_length(),
                                   options.parallel));
  signals.wait();
  shut_down(server, *service, options);
  save_profile(*engine, options.general);
  return kSuccess;
}

void add_network_options(Command& command, ServeOptions& options) {
  command.group("Network")
      .option("--host", options.host, "ADDRESS",
              "address to listen on, or a UNIX socket ending in .sock (default: 127.0.0.1)")
      .option("--port", options.port, "N", "0: any that is free (default: 9099)")
      .option("--api-key", options.api_keys, "KEY",
              "ask for this key; repeatable [env: MOEFLUX_API_KEY]")
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

}  // namespace

void add_serve_command(CommandLine& line) {
  const auto options = std::make_shared<ServeOptions>();
  Command& command = line.add("serve", "Answer over HTTP, as the OpenAI API does.");
  command.arguments("[MODEL]", 1);
  add_network_options(command, *options);
  command.group("Requests")
      .option("--alias", options->alias, "NAME",
              "how clients see the model (default: the name of its directory)")
      .option("--parallel", options->parallel, "N",
              "answers at the same time; each has a context of its own (default: 2)")
      .option("--queue", options->queue, "N", "requests that may wait (default: 64)")
      .option("--checkpoints", options->checkpoints, "N",
              "places of a context that can be gone back to (default: 4)")
      .option("--prefix-store", options->prefix_store, "WHERE",
              "keep what was read on disk: on, off or a directory (default: on)")
      .option("--prefix-size", options->prefix_size, "SIZE",
              fmt::format("what the store may take of the disk (default: {})",
                          format_bytes(PrefixStoreOptions().max_bytes)));
  add_model_option(command, options->model);
  add_machine_options(command, options->model);
  options->model.draft = "auto";
  add_draft_option(command, options->model);
  add_general_options(command, options->general);
  command.example("serve")
      .example("serve /data/qwen --ram 16G --port 8080")
      .example("serve --host 0.0.0.0 --api-key-file keys.txt --parallel 4")
      .example("serve --host /run/user/1000/moeflux.sock");
  command.note("GET /health answers 503 while the model is loaded and 200 afterwards.")
      .note("SIGTERM or Ctrl-C lets answers come to their end, a second one ends at once.");
  command.run(
      [options](const std::vector<std::string>& arguments) { return run(*options, arguments); });
}

}  // namespace moeflux::cli
