#include "cli/options/serve_options.h"

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/memory_budget.h"
#include "cli/build_info.h"
#include "cli/prefix_session.h"
#include "engine/model_plan.h"

namespace moeflux::cli {
namespace {

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

void add_network_options(Command& command, ServeOptions& options) {
  command.group("Network")
      .option("--host", options.host, "ADDRESS",
              "address to listen on, or a UNIX socket ending in .sock (default: 127.0.0.1)")
      .option("--port", options.port, "N", "0: any that is free (default: 9099)")
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

KeepAlive parse_keep(const ServeOptions& options) {
  try {
    return parse_keep_alive(options.keep_alive);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--keep-alive: {}", error.what()), "serve");
  }
}

}  // namespace

std::chrono::milliseconds ServeOptions::drain_time() const {
  return in_seconds(drain_seconds, 0, "--drain-seconds");
}

void add_serve_options(Command& command, ServeOptions& options) {
  add_network_options(command, options);
  add_request_options(command, options);
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

void check_serve_options(ServeOptions& options) {
  options.model.n_sessions = static_cast<int>(in_range(options.parallel, 1, 256, "--parallel"));
  options.model.n_checkpoints =
      static_cast<int>(in_range(options.checkpoints, 0, 256, "--checkpoints"));
  in_range(options.queue, 0, 100'000, "--queue");
  in_range(options.max_models, 1, 1000, "--max-models");
  if (options.host.empty())
    throw UsageError("--host: needs an address, such as 127.0.0.1", "serve");
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
  server.limits.ping = in_seconds(options.ping_seconds, 0.1, "--ping-seconds");
  return server;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

ServerAppOptions app_options(const ServeOptions& options, const std::string& model_path) {
  ServerAppOptions app;
  app.model_id = model_name(options, model_path);
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

}  // namespace moeflux::cli
