#include <algorithm>

#include <fmt/format.h>

#include "engine/model_catalog.h"
#include "server/dialects/ollama/ollama.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

// What clients are told of a model, whether it is in memory or not.
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

// For a model that is not loaded: reads everything but the weights. Throws Error.
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

constexpr const char* kNever = "9999-12-31T23:59:59Z";  // it stays until the server goes

// Clients expect a tag in every name.
std::string full_name(const std::string& id) {
  return id.find(':') == std::string::npos ? id + ":latest" : id;
}

// 1234567 -> "1.2M".
std::string short_count(std::int64_t n) {
  const auto value = static_cast<double>(n);
  if (value >= 1e9) return fmt::format("{:.1f}B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.1f}M", value / 1e6);
  return fmt::format("{:.1f}K", value / 1e3);
}

// Clients show the first letters of a digest and compare digests to see whether a model has
// changed. This one is of the model's path and size: a digest of the weights would have to read
// them all.
std::string digest(const ModelCard& card) {
  const std::string text = fmt::format("{} {} {}", card.n_parameters, card.bytes, card.path);
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

Json details(const ModelCard& card) {
  return {{"parent_model", ""},
          {"format", "moeflux"},
          {"family", card.family},
          {"families", Json::array({card.family})},
          {"parameter_size", short_count(card.n_parameters)},
          {"quantization_level", fmt::format("{:.3g} bits", card.expert_bits)}};
}

Json head(const std::string& id, const ModelCard& card) {
  const std::string name = full_name(id);
  return {{"name", name},
          {"model", name},
          {"size", card.bytes},
          {"digest", digest(card)},
          {"details", details(card)}};
}

// Of one of several, the same whether it is in memory or not.
Json head(const CatalogEntry& entry) {
  ModelCard card;
  card.path = entry.path;
  card.family = entry.family;
  card.n_parameters = entry.n_parameters;
  card.bytes = entry.bytes;
  card.expert_bits = entry.expert_bits;
  return head(entry.name, card);
}

std::string time_of(std::int64_t seconds) {
  return ollama_time(std::chrono::system_clock::from_time_t(static_cast<std::time_t>(seconds)));
}

Json capabilities(const ModelCard& card) {
  Json list = Json::array({"completion"});
  if (card.calls_tools) list.push_back("tools");
  if (card.thinks) list.push_back("thinking");
  return list;
}

// One "name value" a line.
std::string parameters(const SamplingParams& params) {
  return fmt::format(
      "temperature {}\ntop_k {}\ntop_p {}\nmin_p {}\nrepeat_penalty {}\npresence_penalty {}\n"
      "frequency_penalty {}",
      params.temperature, params.top_k, params.top_p, params.min_p, params.repetition_penalty,
      params.presence_penalty, params.frequency_penalty);
}

std::string template_text(const Json& text) {
  return text.is_string() ? text.get<std::string>() : text.is_null() ? "" : dump_json(text);
}

Json model_info(const ModelCard& card) {
  Json info = {{"general.architecture", card.family},
               {"general.parameter_count", card.n_parameters}};
  // What this server holds, not what the model was made for: clients set num_ctx to it.
  info[card.family + ".context_length"] = card.context_length;
  info[card.family + ".block_count"] = card.n_layers;
  info[card.family + ".embedding_length"] = card.d_model;
  info[card.family + ".vocab_size"] = card.n_vocab;
  info[card.family + ".expert_count"] = card.n_experts;
  info[card.family + ".expert_used_count"] = card.top_k;
  return info;
}

Json shown(const ModelCard& card, std::int64_t modified) {
  return {{"modelfile", ""},
          {"parameters", parameters(card.sampling)},
          {"template", template_text(card.chat_template)},
          {"details", details(card)},
          {"model_info", model_info(card)},
          {"capabilities", capabilities(card)},
          {"modified_at", time_of(modified)}};
}

Json running(Json model, const GenerationService& service, std::string expires) {
  model["expires_at"] = std::move(expires);
  model["size_vram"] = 0;
  model["context_length"] = service.engine().context_length();
  return model;
}

// Nothing is loaded to be shown: clients ask this of every model they list.
Json show_one_of(ModelPool& pool, const std::string& name) {
  const CatalogEntry entry = pool.find(name);
  for (const PoolModel& each : pool.loaded()) {
    if (each.entry.path == entry.path) return shown(make_card(*each.lease.service), entry.modified);
  }
  return shown(read_card(entry, pool.options().engine), entry.modified);
}

}  // namespace

Json ollama_tags(const ServerApp& app) {
  Json models = Json::array();
  if (ModelPool* pool = app.models().pool()) {
    for (const CatalogEntry& each : pool->models()) {
      if (!each.problem.empty()) continue;
      models.push_back(head(each));
      models.back()["modified_at"] = time_of(each.modified);
    }
  } else {
    const ModelLease only = app.models().only();
    models.push_back(head(only.name, make_card(*only.service)));
    models.back()["modified_at"] = time_of(only.service->created());
  }
  return {{"models", std::move(models)}};
}

Json ollama_running(const ServerApp& app) {
  Json models = Json::array();
  if (ModelPool* pool = app.models().pool()) {
    for (const PoolModel& each : pool->loaded())
      models.push_back(running(head(each.entry), *each.lease.service,
                               each.expires ? ollama_time(*each.expires) : kNever));
  } else if (app.models().is_ready()) {
    const ModelLease only = app.models().only();
    models.push_back(running(head(only.name, make_card(*only.service)), *only.service, kNever));
  }
  return {{"models", std::move(models)}};
}

Json ollama_show(const ServerApp& app, const std::string& name) {
  if (ModelPool* pool = app.models().pool()) return show_one_of(*pool, name);
  const ModelLease only = app.models().only();
  if (full_name(name) != full_name(only.name)) {
    throw HttpError(404, "not_found_error",
                    fmt::format("model '{}' not found; {} is loaded", name, only.name));
  }
  return shown(make_card(*only.service), only.service->created());
}

}  // namespace moeflux
