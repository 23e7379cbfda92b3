// The options of moeflux serve, and what they mean for the parts of a server.
#pragma once

#include "cli/options/general_options.h"
#include "cli/options/model_options.h"
#include "server/http/http_server.h"
#include "server/server_app.h"

namespace moeflux::cli {

struct ServeOptions {
  ModelOptions model;
  GeneralOptions general;
  std::string host = "127.0.0.1";
  std::int64_t port = 9099;
  std::int64_t parallel = 2, queue = 64, checkpoints = 4, max_models = 1;
  std::vector<std::string> api_keys, cors_origins, hosts;
  std::optional<std::string> api_key_file, alias, max_body;
  std::string keep_alive = "5m";
  std::string prefix_store = "on";
  std::optional<std::string> prefix_size;
  double ping_seconds = 15, drain_seconds = 30;
  ServerMemory memory = {};  // of --ram, beside the engine; set by check_serve_options()
  RequestMemoryPtr request_memory = {};

  std::chrono::milliseconds drain_time() const;
};

void add_serve_options(Command& command, ServeOptions& options);

// All of these throw UsageError, which names the option.
void check_serve_options(ServeOptions& options);  // and fills in what the model options need
HttpServerOptions server_options(const ServeOptions& options);
ServerAppOptions app_options(const ServeOptions& options, const std::string& model_path);
ServiceOptions service_options(const ServeOptions& options);
PoolOptions pool_options(const ServeOptions& options);  // of --models

bool is_loopback(const std::string& host);

}  // namespace moeflux::cli
