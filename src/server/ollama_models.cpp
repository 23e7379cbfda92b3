#include "server/ollama_models.h"

#include <fmt/format.h>

#include "server/ollama_answer.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

constexpr const char* kNever = "9999-12-31T23:59:59Z";  // the model stays until the server goes

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

// Clients show the beginning of a digest and compare it to see whether a model has changed. This
// one is of the model's place and size only: one of all weights would have to read them all.
std::string digest(const GenerationService& service) {
  const std::string text = fmt::format("{} {} {}", service.facts().n_parameters,
                                       service.facts().size_bytes, service.engine().path());
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

Json details(const GenerationService& service) {
  const std::string& family = service.engine().config().family;
  return {{"parent_model", ""},
          {"format", "moeflux"},
          {"family", family},
          {"families", Json::array({family})},
          {"parameter_size", short_count(service.facts().n_parameters)},
          {"quantization_level", fmt::format("{:.3g} bits", service.facts().expert_bits)}};
}

Json head(const ServerApp& app, const GenerationService& service) {
  const std::string name = full_name(app.options().model_id);
  return {{"name", name},
          {"model", name},
          {"size", service.facts().size_bytes},
          {"digest", digest(service)},
          {"details", details(service)}};
}

std::string created_at(const GenerationService& service) {
  return ollama_time(
      std::chrono::system_clock::from_time_t(static_cast<std::time_t>(service.created())));
}

Json capabilities(const GenerationService& service) {
  Json list = Json::array({"completion"});
  if (!service.engine().has_chat_template()) return list;
  const ReplyProfile& profile = service.prompt_maker().profile(true);
  if (profile.format != ReplyFormat::Plain) list.push_back("tools");
  if (profile.thinks) list.push_back("thinking");
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

std::string template_text(const Engine& engine) {
  const Json& text = engine.source().text().chat_template;
  return text.is_string() ? text.get<std::string>() : text.is_null() ? "" : dump_json(text);
}

Json model_info(const GenerationService& service) {
  const Engine& engine = service.engine();
  const std::string& family = engine.config().family;
  Json info = {{"general.architecture", family},
               {"general.parameter_count", service.facts().n_parameters}};
  // What this server holds, not what the model was made for: clients set num_ctx to it.
  info[family + ".context_length"] = engine.context_length();
  info[family + ".block_count"] = engine.config().n_layers();
  info[family + ".embedding_length"] = engine.config().d_model;
  info[family + ".vocab_size"] = engine.config().n_vocab;
  info[family + ".expert_count"] = service.facts().n_experts;
  info[family + ".expert_used_count"] = service.facts().top_k;
  return info;
}

}  // namespace

Json ollama_tags(const ServerApp& app) {
  const auto service = app.service();
  Json model = head(app, *service);
  model["modified_at"] = created_at(*service);
  return {{"models", Json::array({std::move(model)})}};
}

Json ollama_running(const ServerApp& app) {
  if (!app.is_ready()) return {{"models", Json::array()}};
  const auto service = app.service();
  Json model = head(app, *service);
  model["expires_at"] = kNever;
  model["size_vram"] = 0;
  model["context_length"] = service->engine().context_length();
  return {{"models", Json::array({std::move(model)})}};
}

Json ollama_show(const ServerApp& app, const std::string& name) {
  const auto service = app.service();
  if (full_name(name) != full_name(app.options().model_id)) {
    throw HttpError(
        404, "not_found_error",
        fmt::format("model '{}' not found; {} is loaded", name, app.options().model_id));
  }
  return {{"modelfile", ""},
          {"parameters", parameters(service->default_sampling())},
          {"template", template_text(service->engine())},
          {"details", details(*service)},
          {"model_info", model_info(*service)},
          {"capabilities", capabilities(*service)},
          {"modified_at", created_at(*service)}};
}

}  // namespace moeflux
