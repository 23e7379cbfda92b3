#include "server/service/model_card.h"

#include <algorithm>

#include "engine/model_catalog.h"

namespace moeflux {
namespace {

void add_config(ModelCard& card, const ModelConfig& config) {
  card.family = config.family;
  card.n_layers = static_cast<int>(config.n_layers());
  card.d_model = config.d_model;
  card.n_vocab = config.n_vocab;
  for (const LayerSpec& layer : config.layers) {
    const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
    if (moe == nullptr) continue;
    card.n_experts = std::max(card.n_experts, moe->n_experts);
    card.top_k = std::max(card.top_k, moe->top_k);
  }
}

void add_profile(ModelCard& card, const ReplyProfile& profile) {
  card.calls_tools = profile.format != ReplyFormat::Plain;
  card.thinks = profile.thinks;
}

}  // namespace

ModelCard make_card(const GenerationService& service) {
  const Engine& engine = service.engine();
  ModelCard card;
  card.path = engine.path();
  add_config(card, engine.config());
  card.n_parameters = service.facts().n_parameters;
  card.bytes = service.facts().size_bytes;
  card.expert_bits = service.facts().expert_bits;
  card.context_length = engine.context_length();
  card.sampling = service.default_sampling();
  card.chat_template = engine.source().text().chat_template;
  if (engine.has_chat_template()) add_profile(card, service.prompt_maker().profile(true));
  return card;
}

ModelCard read_card(const CatalogEntry& entry, const EngineOptions& options) {
  const auto source = open_source(entry.path);
  const ModelDescription model = describe_model(*source);
  ModelCard card;
  card.path = entry.path;
  add_config(card, model.config);
  card.n_parameters = entry.n_parameters;
  card.bytes = entry.bytes;
  card.expert_bits = entry.expert_bits;
  card.context_length =
      std::min<std::int64_t>(options.context_length > 0 ? options.context_length : kDefaultContext,
                             model.config.context_length);
  card.sampling =
      sampling_defaults(source->generation_config(), entry.path + "/generation_config.json");
  card.chat_template = source->text().chat_template;
  const auto tokenizer = load_tokenizer(*source);
  if (const auto chat = load_chat_template(*source, tokenizer.get(), /*with_tools=*/true))
    add_profile(card, detect_reply_profile(*chat));
  return card;
}

}  // namespace moeflux
