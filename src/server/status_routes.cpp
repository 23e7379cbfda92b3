#include "server/status_routes.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "server/openai_errors.h"
#include "server/openai_request.h"
#include "server/request_fields.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

Json model_json(const ServerApp& app, const GenerationService& service) {
  const Engine& engine = service.engine();
  const ModelFacts& facts = service.facts();
  return {{"id", app.options().model_id},
          {"object", "model"},
          {"created", service.created()},
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

HttpResponse list_models(const ServerApp& app, const HttpRequest&) {
  const auto service = app.service();
  return {.body =
              dump_json({{"object", "list"}, {"data", Json::array({model_json(app, *service)})}})};
}

HttpResponse show_model(const ServerApp& app, const HttpRequest& request) {
  const auto service = app.service();
  const std::string& name = request.parameters.at("model");
  if (name != app.options().model_id) {
    throw HttpError(404, "not_found_error",
                    fmt::format("there is no model {}; {} is loaded", name, app.options().model_id))
        .with_param("model");
  }
  return {.body = dump_json(model_json(app, *service))};
}

HttpResponse health(const ServerApp& app, const HttpRequest&) {
  app.service();
  return {.body = R"({"status":"ok"})"};
}

Json sampling_json(const SamplingParams& params) {
  return {{"temperature", params.temperature},
          {"top_k", params.top_k},
          {"top_p", params.top_p},
          {"min_p", params.min_p},
          {"typical_p", params.typical_p},
          {"repeat_penalty", params.repetition_penalty},
          {"presence_penalty", params.presence_penalty},
          {"frequency_penalty", params.frequency_penalty}};
}

Json plan_json(const MemoryPlan& plan) {
  return {{"ceiling", plan.ceiling},       {"dense", plan.dense_bytes},
          {"context", plan.context_bytes}, {"workspace", plan.scratch_bytes},
          {"drafts", plan.draft_bytes},    {"reader", plan.reader_bytes},
          {"program", plan.program_bytes}, {"expert_cache", plan.cache_bytes()},
          {"expert_slots", plan.n_slots},  {"experts", plan.max_slots}};
}

HttpResponse props(const ServerApp& app, const HttpRequest&) {
  const auto service = app.service();
  const Engine& engine = service->engine();
  const ModelFacts& facts = service->facts();
  const ReplyProfile& profile = service->prompt_maker().profile(true);
  Json special = Json::object();
  if (engine.has_tokenizer()) {
    for (const auto& [name, text] : engine.tokenizer().special_tokens()) special[name] = text;
  }
  const Json chat_template = engine.source().text().chat_template;
  Json body = {{"default_generation_settings",
                {{"n_ctx", engine.context_length()},
                 {"params", sampling_json(service->default_sampling())}}},
               {"total_slots", service->options().n_parallel},
               {"model_alias", app.options().model_id},
               {"model_path", engine.path()},
               {"chat_template", chat_template},
               {"special_tokens", std::move(special)},
               {"build_info", "moeflux-" + app.options().version},
               {"moeflux",
                {{"family", engine.config().family},
                 {"top_k", facts.top_k},
                 {"n_experts", facts.n_experts},
                 {"expert_bits", facts.expert_bits},
                 {"precision", facts.precision},
                 {"kv", facts.kv_type},
                 {"tool_calls", to_string(profile.format)},
                 {"thinks", profile.thinks},
                 {"memory", plan_json(engine.plan())}}}};
  return {.body = dump_json(body)};
}

HttpResponse slots(const ServerApp& app, const HttpRequest&) {
  const auto service = app.service();
  const SchedulerStats stats = service->stats();
  Json list = Json::array();
  for (int i = 0; i < service->options().n_parallel; ++i) {
    list.push_back({{"id", i},
                    {"n_ctx", service->engine().context_length()},
                    {"is_processing", static_cast<std::size_t>(i) < stats.n_running}});
  }
  return {.body = dump_json(list)};
}

HttpResponse metrics(const ServerApp& app, const HttpRequest&) {
  const auto service = app.service();
  return {.content_type = "text/plain; version=0.0.4",
          .body = service->metrics().text(service->stats(), app.n_connections())};
}

Json piece_json(std::string_view bytes) {
  if (find_invalid_utf8(bytes) == std::string_view::npos) return std::string(bytes);
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

HttpResponse tokenize(const ServerApp& app, const HttpRequest& request) {
  const auto service = app.service();
  const Tokenizer& tokenizer = service->tokenizer();
  const Json body = parse_body(request);
  const RequestFields fields(body);
  const auto content = fields.string("content");
  if (!content) fields.refuse("content", "is missing");
  const bool special = fields.boolean("parse_special").value_or(true);
  std::vector<TokenId> ids = naming("content", [&] {
    return special ? tokenizer.encode_markup(*content) : tokenizer.encode_data(*content);
  });
  if (fields.boolean("add_special").value_or(false)) ids = tokenizer.with_special_tokens(ids);
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  Json tokens = Json::array();
  for (const TokenId id : ids) {
    if (with_pieces)
      tokens.push_back({{"id", id}, {"piece", piece_json(tokenizer.token_bytes(id))}});
    else
      tokens.push_back(id);
  }
  return {.body = dump_json({{"tokens", std::move(tokens)}})};
}

HttpResponse detokenize(const ServerApp& app, const HttpRequest& request) {
  const auto service = app.service();
  const Json body = parse_body(request);
  const RequestFields fields(body);
  const Json* tokens = fields.array("tokens");
  if (tokens == nullptr) fields.refuse("tokens", "is missing");
  std::vector<TokenId> ids;
  for (const Json& token : *tokens) {
    if (!token.is_number_integer() || token.get<std::int64_t>() < 0 ||
        token.get<std::int64_t>() >= service->engine().config().n_vocab)
      fields.refuse("tokens", fmt::format("has {}, which is no token of this model", token.dump()));
    ids.push_back(token.get<TokenId>());
  }
  return {.body = dump_json({{"content", service->tokenizer().decode(ids)}})};
}

HttpResponse apply_template(const ServerApp& app, const HttpRequest& request) {
  const auto service = app.service();
  const OpenAiRequest chat = read_chat_request(parse_body(request));
  return {.body = dump_json({{"prompt", service->render(chat.generation).text}})};
}

}  // namespace

void add_status_routes(ServerApp& app) {
  const auto add = [&](const char* method, const char* path, auto handler, bool needs_key = true) {
    app.router().add({method, path,
                      [&app, handler](const HttpRequest& request, const ExchangePtr& exchange) {
                        exchange->respond(handler(app, request));
                      },
                      openai_error, needs_key});
  };
  for (const char* path : {"/health", "/v1/health"}) add("GET", path, health, /*needs_key=*/false);
  for (const char* path : {"/v1/models", "/models"}) add("GET", path, list_models);
  for (const char* path : {"/v1/models/{model}", "/models/{model}"}) add("GET", path, show_model);
  add("GET", "/props", props);
  add("GET", "/slots", slots);
  add("GET", "/metrics", metrics);
  add("POST", "/tokenize", tokenize);
  add("POST", "/detokenize", detokenize);
  add("POST", "/apply-template", apply_template);
}

}  // namespace moeflux
