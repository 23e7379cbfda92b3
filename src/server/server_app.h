// The application behind the HTTP core: who may ask, which handler answers, and with which model
// (model_access.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/router.h"
#include "server/service/model_access.h"

namespace moeflux {

struct ServerAppOptions {
  std::string model_id = "model";  // how clients see the model, where there is one
  std::string version = "0";
  std::vector<std::string> api_keys = {};      // none: everybody may ask
  std::vector<std::string> cors_origins = {};  // whose pages may; "*": everybody's
  // Names in a Host header besides addresses and localhost; "*": any. A web page that has its own
  // name resolved to this machine must not reach a server meant for this machine alone.
  std::vector<std::string> hosts = {};
};

class ServerApp {
 public:
  explicit ServerApp(ServerAppOptions options);

  // Entry of all requests. Never throws; answers on the exchange, perhaps later.
  void handle(HttpRequest request, const ExchangePtr& exchange);

  ModelAccess& models() { return models_; }
  const ModelAccess& models() const { return models_; }
  void set_service(std::shared_ptr<GenerationService> service) {
    models_.set_service(std::move(service));
  }
  // How many connections are open, for /metrics.
  void set_connection_count(std::function<std::size_t()> count) {
    n_connections_ = std::move(count);
  }

  // A route whose handler needs the model that the request names.
  void add_model_route(std::string method, std::string pattern, ModelRoute route);
  const ServerAppOptions& options() const { return options_; }
  HttpRouter& router() { return router_; }
  std::size_t n_connections() const { return n_connections_ ? n_connections_() : 0; }

 private:
  void check_origin(const HttpRequest& request, Exchange& exchange) const;
  bool answer_preflight(const HttpRequest& request, Exchange& exchange) const;
  void check_host(const HttpRequest& request) const;
  void check_key(const HttpRequest& request) const;
  bool allows_origin(std::string_view origin) const;

  ServerAppOptions options_;
  HttpRouter router_;
  std::function<std::size_t()> n_connections_;
  ModelAccess models_;
};

// Takes as long for a wrong key as for the right one.
bool same_key(std::string_view given, std::string_view key);

}  // namespace moeflux
