#include "server/service/model_access.h"

#include <fmt/format.h>

#include "server/dialects/ollama/request.h"
#include "server/dialects/request_fields.h"
#include "server/service/answering.h"

namespace moeflux {
namespace {

Json body_of(const HttpRequest& http) {
  return http.method == "POST" ? parse_body(http) : Json::object();
}

std::optional<KeepAlive> keep_alive_of(const ModelRoute& route, const Json& body) {
  if (!route.is_ollama) return std::nullopt;
  const Json* given = RequestFields(body).find("keep_alive");
  if (given == nullptr) return std::nullopt;
  return naming("keep_alive", [&] { return read_keep_alive(*given); });
}

}  // namespace

void start_answer(const ModelRequest& request, const GenerationRequest& generation,
                  GenerationSink sink, const std::function<void()>& accepted) {
  const auto answers = request.model.service->start(generation, std::move(sink), accepted);
  answers->keep(request.model.held);
  request.exchange->on_gone([answers] { answers->cancel(); });
}

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

// By this thread where there are no workers.
void ModelAccess::have_done(std::function<void()> work) const {
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
    have_done([go_on, result = std::move(result)] { go_on(result); });
  });
}

}  // namespace moeflux
