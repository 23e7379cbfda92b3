// The application behind the HTTP core: who may ask, which handler answers, and the model all
// handlers work with. The model may come later than the first request: until then handlers that
// need it answer 503.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/generation_service.h"
#include "server/router.h"

namespace moeflux {

struct ServerAppOptions {
  std::string model_id = "model";  // how clients see the model
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

  void set_service(std::shared_ptr<GenerationService> service);
  // How many connections are open, for /metrics.
  void set_connection_count(std::function<std::size_t()> count) {
    n_connections_ = std::move(count);
  }

  // For handlers. A request may name any model: there is one. Throws HttpError 503 while it loads.
  std::shared_ptr<GenerationService> service() const;
  bool is_ready() const;
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
  mutable std::mutex mutex_;
  std::shared_ptr<GenerationService> service_;
};

// Takes as long for a wrong key as for the right one.
bool same_key(std::string_view given, std::string_view key);

}  // namespace moeflux
