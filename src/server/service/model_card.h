// What can be said of a model whether it is in memory or not, for those who choose one.
#pragma once

#include "base/json.h"
#include "engine/model_catalog.h"
#include "server/service/generation_service.h"

namespace moeflux {

struct ModelCard {
  std::string path, family;
  std::int64_t n_parameters = 0;
  std::uint64_t bytes = 0;  // of the weights
  double expert_bits = 0;
  int n_layers = 0, n_experts = 0, top_k = 0;
  std::int64_t d_model = 0, n_vocab = 0;
  std::int64_t context_length = 0;  // that this server holds, or would
  SamplingParams sampling = {};
  Json chat_template = nullptr;  // null when it has none
  bool calls_tools = false, thinks = false;
};

ModelCard make_card(const GenerationService& service);
// Of one that is not loaded: reads all but the weights. Throws Error.
ModelCard read_card(const CatalogEntry& entry, const EngineOptions& options);

}  // namespace moeflux
