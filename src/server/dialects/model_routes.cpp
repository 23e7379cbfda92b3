#include "server/dialects/model_routes.h"

#include <algorithm>

#include <fmt/format.h>

#include "server/dialects/openai/errors.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

Json loaded_json(const ModelLease& model) {
  const Engine& engine = model.service->engine();
  const ModelFacts& facts = model.service->facts();
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.service->created()},
          {"owned_by", "moeflux"},
          {"meta",
           {{"n_ctx", engine.context_length()},
            {"n_ctx_train", engine.config().context_length},
            {"n_params", facts.n_parameters},
            {"size", facts.size_bytes},
            {"n_vocab", engine.config().n_vocab},
            {"n_embd", engine.config().d_model},
            {"family", engine.config().family}}}};
}

// One of several: what is in memory is known better.
Json entry_json(const CatalogEntry& entry, const std::vector<PoolModel>& loaded) {
  const auto found = std::find_if(loaded.begin(), loaded.end(), [&](const PoolModel& each) {
    return each.entry.path == entry.path;
  });
  Json model = {
      {"id", entry.name},
      {"object", "model"},
      {"created", entry.modified},
      {"owned_by", "moeflux"},
      {"meta",
       {{"n_params", entry.n_parameters}, {"size", entry.bytes}, {"family", entry.family}}}};
  if (found != loaded.end()) {
    model = loaded_json(found->lease);
    model["created"] = entry.modified;  // the same whether loaded or not
  }
  model["meta"]["format"] = entry.format;
  model["meta"]["loaded"] = found != loaded.end();
  return model;
}

HttpResponse list_models(const ServerApp& app) {
  Json models = Json::array();
  if (ModelPool* pool = app.models().pool()) {
    const std::vector<PoolModel> loaded = pool->loaded();
    for (const CatalogEntry& each : pool->models()) {
      if (each.problem.empty()) models.push_back(entry_json(each, loaded));
    }
  } else {
    models.push_back(loaded_json(app.models().only()));
  }
  return {.body = dump_json({{"object", "list"}, {"data", std::move(models)}})};
}

HttpResponse show_model(const ServerApp& app, const HttpRequest& request) {
  const std::string name = named_model(request, Json::object(), /*is_ollama=*/false);
  if (ModelPool* pool = app.models().pool())
    return {.body = dump_json(entry_json(pool->find(name), pool->loaded()))};
  const ModelLease only = app.models().only();
  if (name != only.name) {
    throw HttpError(404, "not_found_error",
                    fmt::format("there is no model {}; {} is loaded", name, only.name))
        .with_param("model");
  }
  return {.body = dump_json(loaded_json(only))};
}

}  // namespace

void add_model_list_routes(ServerApp& app) {
  const auto add = [&](const char* path, auto handler) {
    app.router().add({"GET", path,
                      [&app, handler](const HttpRequest& request, const ExchangePtr& exchange) {
                        exchange->respond(handler(app, request));
                      },
                      openai_error});
  };
  for (const char* path : {"/v1/models", "/models"})
    add(path, [](const ServerApp& server, const HttpRequest&) { return list_models(server); });
  for (const char* path : {"/v1/models/{model}", "/models/{model}"}) add(path, show_model);
}

}  // namespace moeflux
