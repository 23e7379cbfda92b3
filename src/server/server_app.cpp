#include "server/server_app.h"

#include <algorithm>

#include <fmt/format.h>

#include "server/dialects/errors.h"
#include "server/dialects/ollama/ollama.h"
#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

bool contains(const std::vector<std::string>& list, std::string_view what) {
  return std::find(list.begin(), list.end(), what) != list.end() ||
         std::find(list.begin(), list.end(), "*") != list.end();
}

// "localhost:9099" -> "localhost", "[::1]:80" -> "[::1]".
std::string_view without_port(std::string_view host) {
  const std::size_t end = host.starts_with('[') ? host.find(']') : host.rfind(':');
  if (end == std::string_view::npos) return host;
  return host.substr(0, host.starts_with('[') ? end + 1 : end);
}

bool is_address(std::string_view host) {
  if (host.starts_with('[')) return true;
  return host.find_first_not_of("0123456789.") == std::string_view::npos;
}

// A body that says it is something else is no JSON. curl's default is taken for a missing type.
void check_content_type(const HttpRequest& request) {
  if (request.method != "POST" || request.body.empty()) return;
  std::string type = lower_case(request.header("content-type"));
  type = type.substr(0, type.find(';'));
  while (!type.empty() && type.back() == ' ') type.pop_back();
  if (type.empty() || type == "application/json" || type.ends_with("+json") ||
      type == "application/x-www-form-urlencoded")
    return;
  throw HttpError(415, "invalid_request_error",
                  fmt::format("the body is {}; application/json is expected", type));
}

Json body_of(const HttpRequest& http) {
  return http.method == "POST" ? parse_body(http) : Json::object();
}

std::optional<KeepAlive> keep_alive_of(const ModelRoute& route, const Json& body) {
  if (!route.is_ollama) return std::nullopt;
  const Json* given = RequestFields(body).find("keep_alive");
  if (given == nullptr) return std::nullopt;
  return naming("keep_alive", [&] { return read_keep_alive(*given); });
}

bool matches(const std::string& pattern, const std::string& path,
             std::map<std::string, std::string>& parameters) {
  const std::size_t begin = pattern.find('{'), end = pattern.find('}');
  if (begin == std::string::npos) return path == pattern;
  const std::string_view rest = std::string_view(pattern).substr(end + 1);
  if (path.size() <= begin + rest.size() || path.compare(0, begin, pattern, 0, begin) != 0 ||
      !path.ends_with(rest))
    return false;
  const std::string value = path.substr(begin, path.size() - begin - rest.size());
  if (!rest.empty() && value.find('/') != std::string::npos) return false;
  parameters[pattern.substr(begin + 1, end - begin - 1)] = value;
  return true;
}

}  // namespace

const HttpRoute& HttpRouter::find(HttpRequest& request) const {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string allowed;
  for (const HttpRoute& route : routes_) {
    std::map<std::string, std::string> parameters;
    if (!matches(route.pattern, request.path, parameters)) continue;
    if (route.method == method) {
      request.parameters = std::move(parameters);
      return route;
    }
    allowed += (allowed.empty() ? "" : ", ") + route.method;
  }
  if (!allowed.empty()) {
    throw HttpError(405, "invalid_request_error",
                    fmt::format("{} takes {}, not {}", request.path, allowed, request.method))
        .with_header("Allow", allowed);
  }
  throw HttpError(404, "not_found_error",
                  fmt::format("there is nothing at {} {}", request.method, request.path));
}

bool same_key(std::string_view given, std::string_view key) {
  std::size_t difference = given.size() ^ key.size();
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = key.empty() ? '\0' : key[i % key.size()];
    difference |= static_cast<unsigned char>(given[i] ^ other);
  }
  return difference == 0;
}

ServerApp::ServerApp(ServerAppOptions options)
    : options_(std::move(options)), models_(options_.model_id) {
  add_status_routes(*this);
  add_engine_routes(*this);
  add_page_routes(*this);
  add_dialect_routes(*this);
  add_openapi_routes(*this);
}

void ServerApp::add_route(std::string method, std::string pattern, PlainHandler handler,
                          ErrorForm error_form, bool needs_key) {
  router_.add({std::move(method), std::move(pattern),
               [this, handler](const HttpRequest& request, const ExchangePtr& exchange) {
                 exchange->respond(handler(*this, request));
               },
               std::move(error_form), needs_key});
}

void ServerApp::add_model_route(std::string method, std::string pattern, ModelRoute route) {
  ErrorForm error_form = route.error_form;
  router_.add({std::move(method), std::move(pattern),
               [this, shared = std::make_shared<const ModelRoute>(std::move(route))](
                   const HttpRequest& request, const ExchangePtr& exchange) {
                 models_.answer(shared, request, exchange);
               },
               std::move(error_form)});
}

bool ServerApp::allows_origin(std::string_view origin) const {
  return contains(options_.cors_origins, origin);
}

// A page of another origin may only ask where that was allowed, even if it could not read the
// answer.
void ServerApp::check_origin(const HttpRequest& request, Exchange& exchange) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return;
  if (allows_origin(origin)) {
    exchange.add_header("Access-Control-Allow-Origin", std::string(origin));
    exchange.add_header("Vary", "Origin");
    return;
  }
  const std::size_t scheme = origin.find("://");
  if (scheme != std::string_view::npos && origin.substr(scheme + 3) == request.header("host"))
    return;
  if (request.method == "GET" || request.method == "HEAD") return;
  throw HttpError(
      403, "permission_error",
      fmt::format("pages of {} may not use this server; allow them with --cors-origin", origin));
}

bool ServerApp::answer_preflight(const HttpRequest& request, Exchange& exchange) const {
  if (request.method != "OPTIONS") return false;
  const std::string_view origin = request.header("origin");
  HttpResponse response{.status = 204};
  if (!origin.empty() && allows_origin(origin)) {
    std::string asked(request.header("access-control-request-headers"));
    if (asked.empty()) asked = "authorization, content-type, x-api-key";
    response.headers = {{"Access-Control-Allow-Origin", std::string(origin)},
                        {"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                        {"Access-Control-Allow-Headers", asked},
                        {"Access-Control-Max-Age", "86400"},
                        {"Vary", "Origin"}};
  }
  exchange.respond(std::move(response));
  return true;
}

void ServerApp::check_host(const HttpRequest& request) const {
  if (request.is_local) return;
  const std::string host = lower_case(without_port(request.header("host")));
  if (host.empty() || is_address(host) || host == "localhost" || host.ends_with(".localhost") ||
      contains(options_.hosts, host))
    return;
  throw HttpError(403, "permission_error",
                  fmt::format("this server does not go by the name {}; allow it with "
                              "--allow-host {}",
                              host, host));
}

void ServerApp::check_key(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return;
  std::string_view given = request.header("x-api-key");
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view authorization = request.header("authorization");
  if (lower_case(authorization.substr(0, kBearer.size())) == kBearer)
    given = authorization.substr(kBearer.size());
  bool found = false;
  for (const std::string& key : options_.api_keys) found |= same_key(given, key);
  if (found) return;
  throw HttpError(401, "authentication_error",
                  given.empty() ? "this server asks for a key: Authorization: Bearer KEY"
                                : "the key is not one of this server's")
      .with_header("WWW-Authenticate", "Bearer");
}

void ServerApp::handle(HttpRequest request, const ExchangePtr& exchange) {
  ErrorForm error_form = error_form_of(request.path);
  answering(*exchange, error_form, [&] {
    check_host(request);
    if (answer_preflight(request, *exchange)) return;
    check_origin(request, *exchange);
    const HttpRoute& route = router_.find(request);
    error_form = route.error_form;
    if (route.needs_key) check_key(request);
    check_content_type(request);
    route.handler(request, exchange);
  });
}

// ---- the model of a request

std::string named_model(const HttpRequest& http, const Json& body, bool is_ollama) {
  std::string name;
  if (const auto found = http.parameters.find("model"); found != http.parameters.end())
    name = found->second;
  else if (const auto asked = http.query.find("model"); asked != http.query.end())
    name = asked->second;
  else if (is_ollama)
    name = read_ollama_model(body);
  else
    name = RequestFields(body).string("model").value_or("");
  if (name.size() > kMaxModelName)
    throw bad_request(fmt::format("model is longer than {} bytes", kMaxModelName), "model");
  return name;
}

void ModelAccess::set_service(std::shared_ptr<GenerationService> service) {
  const std::lock_guard lock(mutex_);
  service_ = std::move(service);
}

void ModelAccess::set_workers(Workers workers) {
  const std::lock_guard lock(mutex_);
  workers_ = std::move(workers);
}

void ModelAccess::run_on_worker(std::function<void()> work) const {
  Workers workers;
  {
    const std::lock_guard lock(mutex_);
    workers = workers_;
  }
  if (workers)
    workers(std::move(work));
  else
    work();
}

bool ModelAccess::is_ready() const {
  const std::lock_guard lock(mutex_);
  return pool_ != nullptr || service_ != nullptr;
}

ModelLease ModelAccess::only() const {
  const std::lock_guard lock(mutex_);
  if (service_ == nullptr) {
    throw HttpError(503, "unavailable_error", "the model is being loaded")
        .with_header("Retry-After", "5");
  }
  return {model_id_, service_};
}

void ModelAccess::answer(const std::shared_ptr<const ModelRoute>& route, const HttpRequest& http,
                         const ExchangePtr& exchange) const {
  if (pool_ == nullptr) {
    ModelLease model = only();
    return route->handler({http.memory, std::move(model), body_of(http), exchange});
  }
  Json body = body_of(http);
  const CatalogEntry entry = pool_->find(named_model(http, body, route->is_ollama));
  if (route->without_model && route->without_model(*pool_, entry, body, exchange)) return;
  const std::optional<KeepAlive> keep_alive = keep_alive_of(*route, body);
  if (auto model = pool_->try_lease(entry, keep_alive))
    return route->handler({http.memory, std::move(*model), std::move(body), exchange});
  wait(route, entry, keep_alive, {http.memory, {}, std::move(body), exchange});
}

void ModelAccess::wait(const std::shared_ptr<const ModelRoute>& route, const CatalogEntry& entry,
                       std::optional<KeepAlive> keep_alive, ModelRequest given) const {
  const auto request = std::make_shared<ModelRequest>(std::move(given));
  const auto go_on = [route, request](const ModelPool::LeaseResult& result) {
    answering(*request->exchange, route->error_form, [&] {
      if (const auto* error = std::get_if<HttpError>(&result)) throw HttpError(*error);
      request->model = std::get<ModelLease>(result);
      route->handler(*request);
    });
  };
  const ModelPool::Ticket ticket = pool_->new_ticket();
  // First: once the handler goes on, leaving has another meaning.
  request->exchange->on_gone([pool = pool_, ticket] { pool->forget(ticket); });
  pool_->wait_for(ticket, entry, keep_alive, [this, go_on](ModelPool::LeaseResult result) {
    run_on_worker([go_on, result = std::move(result)] { go_on(result); });
  });
}

}  // namespace moeflux
