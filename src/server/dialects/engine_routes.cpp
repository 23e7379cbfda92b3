// What the engine does, for who looks on.
#include "server/dialects/errors.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

// A model in memory: none is loaded, or kept from being unloaded, to be looked at.
ModelLease model_to_watch(const ServerApp& app, const HttpRequest& request) {
  ModelPool* pool = app.models().pool();
  if (pool == nullptr) return app.models().only();
  const std::string name = named_model(request, Json::object(), /*is_ollama=*/false);
  const std::vector<PoolModel> loaded = pool->loaded();
  const std::string path = name.empty() ? "" : pool->find(name).path;
  for (const PoolModel& each : loaded) {
    if (path.empty() || each.entry.path == path) return each.lease;
  }
  throw HttpError(503, "unavailable_error",
                  name.empty() ? "no model is in memory" : name + " is not in memory")
      .with_header("Retry-After", "5");
}

}  // namespace

void add_engine_routes(ServerApp& app) {
  app.add_route({.method = "GET",
                 .pattern = "/engine/events",
                 .handler =
                     [&app](const HttpRequest& request, const ExchangePtr& exchange) {
                       const ModelLease model = model_to_watch(app, request);
                       model.service->feed().add(exchange, model.name,
                                                 [&app](std::function<void()> work) {
                                                   app.models().run_on_worker(std::move(work));
                                                 });
                     },
                 .error_form = openai_error});
}

}  // namespace moeflux
