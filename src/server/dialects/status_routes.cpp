#include "server/dialects/status_routes.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "server/dialects/openai/errors.h"
#include "server/dialects/openai/request.h"
#include "server/dialects/request_fields.h"
#include "server/http/request_memory.h"
#include "server/server_app.h"
#include "server/service/pool_metrics.h"

namespace moeflux {
namespace {

HttpResponse health(const ServerApp& app, const HttpRequest&) {
  if (app.models().pool() == nullptr) app.models().only();  // throws while it is loaded
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
          {"context", plan.context_bytes}, {"workspace", plan.scratch_bytes()},
          {"drafts", plan.draft_bytes},    {"reader", plan.reader_bytes},
          {"program", plan.program_bytes}, {"expert_cache", plan.cache_bytes()},
          {"expert_slots", plan.n_slots},  {"experts", plan.max_slots}};
}

HttpResponse props(const ServerApp& app, const ModelRequest& asked) {
  const auto& service = asked.model.service;
  const Engine& engine = service->engine();
  const ModelFacts& facts = service->facts();
  const ReplyProfile& profile = service->prompt_maker().profile(true);
  Json special = Json::object();
  for (const auto& [name, text] : engine.tokenizer().special_tokens()) special[name] = text;
  const Json chat_template = engine.source().text().chat_template;
  Json body = {{"default_generation_settings",
                {{"n_ctx", engine.context_length()},
                 {"params", sampling_json(service->default_sampling())}}},
               {"total_slots", service->options().n_parallel},
               {"model_alias", asked.model.name},
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

void add_slots(Json& list, const GenerationService& service, const std::string& model) {
  const SchedulerStats stats = service.stats();
  for (int i = 0; i < service.options().n_parallel; ++i) {
    Json slot = {{"id", i},
                 {"n_ctx", service.engine().context_length()},
                 {"is_processing", static_cast<std::size_t>(i) < stats.n_running}};
    if (!model.empty()) slot["model"] = model;
    list.push_back(std::move(slot));
  }
}

// Nothing is loaded to be looked at.
HttpResponse slots(const ServerApp& app, const HttpRequest& request) {
  Json list = Json::array();
  ModelPool* pool = app.models().pool();
  if (pool == nullptr) {
    add_slots(list, *app.models().only().service, "");
    return {.body = dump_json(list)};
  }
  const std::string name = named_model(request, Json::object(), /*is_ollama=*/false);
  const std::string path = name.empty() ? "" : pool->find(name).path;
  for (const PoolModel& each : pool->loaded()) {
    if (path.empty() || each.entry.path == path)
      add_slots(list, *each.lease.service, each.entry.name);
  }
  return {.body = dump_json(list)};
}

HttpResponse metrics(const ServerApp& app, const HttpRequest&) {
  HttpResponse response{.content_type = "text/plain; version=0.0.4"};
  if (ModelPool* pool = app.models().pool()) {
    response.body = pool_metrics(*pool, app.n_connections());
  } else {
    const auto service = app.models().only().service;
    response.body = service->metrics().text(service->stats(), app.n_connections());
  }
  return response;
}

constexpr std::uint64_t kBytesPerPiece = 128;  // of an answer, with the copies on its way

Json piece_json(std::string_view bytes) {
  if (find_invalid_utf8(bytes) == std::string_view::npos) return std::string(bytes);
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

HttpResponse tokenize(const ServerApp&, const ModelRequest& asked) {
  const Tokenizer& tokenizer = asked.model.service->tokenizer();
  const RequestFields fields(asked.body);
  const auto content = fields.string("content");
  if (!content) fields.refuse("content", "is missing");
  const bool special = fields.boolean("parse_special").value_or(true);
  std::vector<TokenId> ids = naming("content", [&] {
    return special ? tokenizer.encode_markup(*content) : tokenizer.encode_data(*content);
  });
  if (fields.boolean("add_special").value_or(false)) ids = tokenizer.with_special_tokens(ids);
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  if (asked.memory && with_pieces) asked.memory->grow(ids.size() * kBytesPerPiece, kMemoryPatience);
  // Written as text at once: a parsed list would be many times as large.
  std::string list;
  for (const TokenId id : ids) {
    if (!list.empty()) list += ',';
    list += with_pieces ? dump_json({{"id", id}, {"piece", piece_json(tokenizer.token_bytes(id))}})
                        : std::to_string(id);
  }
  return {.body = fmt::format(R"({{"tokens":[{}]}})", list)};
}

HttpResponse detokenize(const ServerApp&, const ModelRequest& asked) {
  const auto& service = asked.model.service;
  const RequestFields fields(asked.body);
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

HttpResponse apply_template(const ServerApp&, const ModelRequest& asked) {
  const OpenAiRequest chat = read_chat_request(asked.body);
  return {.body = dump_json({{"prompt", asked.model.service->render(chat.generation).text}})};
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
  const auto add_for_model = [&](const char* method, const char* path, auto handler) {
    app.add_model_route(method, path,
                        {[&app, handler](const ModelRequest& request) {
                           request.exchange->respond(handler(app, request));
                         },
                         openai_error});
  };
  for (const char* path : {"/health", "/v1/health"}) add("GET", path, health, /*needs_key=*/false);
  add("GET", "/slots", slots);
  add("GET", "/metrics", metrics);
  add_for_model("GET", "/props", props);
  add_for_model("POST", "/tokenize", tokenize);
  add_for_model("POST", "/detokenize", detokenize);
  add_for_model("POST", "/apply-template", apply_template);
}

}  // namespace moeflux
