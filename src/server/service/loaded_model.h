// A model in memory with all that answers for it, and the right to use it for a while.
#pragma once

#include <memory>
#include <string>

#include "engine/model_catalog.h"
#include "server/service/generation_service.h"

namespace moeflux {

class LoadedModel {
 public:
  // Throws Error, as Engine does.
  LoadedModel(CatalogEntry entry, const EngineOptions& engine, const ServiceOptions& service)
      : entry_(std::move(entry)), engine_(entry_.path, engine), service_(engine_, service) {}

  const CatalogEntry& entry() const { return entry_; }
  // Of the service's thread until the service was stopped, but for what never changes.
  Engine& engine() { return engine_; }
  const Engine& engine() const { return engine_; }
  GenerationService& service() { return service_; }

 private:
  CatalogEntry entry_;
  Engine engine_;
  GenerationService service_;  // uses the engine
};

struct ModelLease {
  std::string name;  // how answers call it
  std::shared_ptr<GenerationService> service;
  // Of a model that could be unloaded: it is not, as long as a copy of this or of `service` lives.
  std::shared_ptr<const void> held = {};
};

}  // namespace moeflux
