// The application behind the HTTP core: who may ask, which handler answers, and with which model.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "hub/settings.h"
#include "server/http/exchange.h"
#include "server/service/model_pool.h"

namespace moeflux {

// A request with the model it is for.
struct ModelRequest {
  std::shared_ptr<MemoryShare> memory;  // reserved for all of it; null: not counted
  ModelLease model;
  Json body;  // an object; empty where the request has none
  ExchangePtr exchange;
};
using ModelHandler = std::function<void(const ModelRequest&)>;

struct ModelRoute {
  ModelHandler handler;
  ErrorForm error_form;
  // Ollama's bodies may have a keep_alive, and old ones call the model "name".
  bool is_ollama = false;
  // With several models: answers a request that does not need its model in memory. False: it does.
  std::function<bool(ModelPool&, const CatalogEntry&, const Json& body, const ExchangePtr&)>
      without_model = {};
};

// The model a request names in its path, its query or its body; "" when none. Throws HttpError.
std::string named_model(const HttpRequest& http, const Json& body, bool is_ollama);

// Finds the model of a request: the only one of a server, or one of several by its name.
//
// With one model every name means it, and until it is loaded requests get 503. With a pool, a
// request for a model that is not in memory is put aside, no thread waits for it, and it is handled
// when the model is there; a client that leaves meanwhile is forgotten.
class ModelAccess {
 public:
  // For a server of one model, which clients see under that name.
  explicit ModelAccess(std::string model_id) : model_id_(std::move(model_id)) {}

  void set_service(std::shared_ptr<GenerationService> service);
  void set_pool(ModelPool& pool) { pool_ = &pool; }  // before the first request
  // The pool's thread passes requests on to these workers, so the pool must be stopped first.
  using Workers = std::function<void(std::function<void()>)>;
  void set_workers(Workers workers);

  ModelPool* pool() const { return pool_; }  // null: there is one model
  ModelLease only() const;                   // throws HttpError 503 while it is loaded
  bool is_ready() const;

  void answer(const std::shared_ptr<const ModelRoute>& route, const HttpRequest& http,
              const ExchangePtr& exchange) const;
  // On this thread where there are no workers.
  void run_on_worker(std::function<void()> work) const;

 private:
  void wait(const std::shared_ptr<const ModelRoute>& route, const CatalogEntry& entry,
            std::optional<KeepAlive> keep_alive, ModelRequest request) const;

  const std::string model_id_;
  ModelPool* pool_ = nullptr;
  mutable std::mutex mutex_;
  Workers workers_;
  std::shared_ptr<GenerationService> service_;
};

// Which handler answers which path. Built once, then read by any thread.
using HttpHandler = std::function<void(const HttpRequest&, const ExchangePtr&)>;

struct HttpRoute {
  std::string method;
  // "/v1/models/{model}": a piece may name a parameter, which takes all of a path's end. Where more
  // follows, as in "/v1/responses/{id}/cancel", it takes one piece; such a route comes first.
  std::string pattern;
  HttpHandler handler;
  ErrorForm error_form;
  bool needs_key = true;
};

class HttpRouter {
 public:
  void add(HttpRoute route) { routes_.push_back(std::move(route)); }

  // Fills the request's parameters. Throws HttpError 404, or 405 with the methods there are. HEAD
  // finds GET.
  const HttpRoute& find(HttpRequest& request) const;
  const std::vector<HttpRoute>& routes() const { return routes_; }

 private:
  std::vector<HttpRoute> routes_;
};

struct ServerAppOptions {
  std::string model_id = "model";  // how clients see the model, where there is one
  std::string version = "0";
  Json build = nullptr;                        // how the program was built, for /props
  std::vector<std::string> api_keys = {};      // none: everybody may ask
  std::vector<std::string> cors_origins = {};  // whose pages may; "*": everybody's
  // Names in a Host header besides addresses and localhost; "*": any. A web page that has its own
  // name resolved to this machine must not reach a server meant for this machine alone.
  std::vector<std::string> hosts = {};
  std::function<HubSettings()> hub = {};  // where models are pulled from; none: nowhere
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

  // A route whose handler needs no model. What it returns is the response.
  using PlainHandler = HttpResponse (*)(const ServerApp&, const HttpRequest&);
  void add_route(std::string method, std::string pattern, PlainHandler handler,
                 ErrorForm error_form, bool needs_key = true);
  // A route whose answer may come later, or be a stream.
  void add_route(HttpRoute route) { router_.add(std::move(route)); }
  // A route whose handler needs the model that the request names.
  void add_model_route(std::string method, std::string pattern, ModelRoute route);
  const HttpRouter& router() const { return router_; }
  const ServerAppOptions& options() const { return options_; }
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

// All paths that the server answers are these (server/dialects, server/page).
//
// Generating text in the dialects of OpenAI (/v1/chat/completions, /v1/completions, /v1/responses,
// also without /v1), Anthropic (/v1/messages) and Ollama (/api/..., and the greeting at /). What
// this server cannot do is answered with 501.
void add_dialect_routes(ServerApp& app);

// Questions about the server and its models: /health, /props, /slots, /metrics, /tokenize,
// /detokenize, /apply-template, /v1/models and /v1/models/{model}, also without /v1.
void add_status_routes(ServerApp& app);

// What the engine does, as a stream of events: /engine/events.
void add_engine_routes(ServerApp& app);

// What all of these take and give, as an OpenAPI document: /openapi.json (server/openapi).
void add_openapi_routes(ServerApp& app);

// The web page: / for browsers, and its files below /page/ (server/page).
void add_page_routes(ServerApp& app);

}  // namespace moeflux
