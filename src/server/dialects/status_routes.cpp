// Questions about the server and its models.
#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "server/dialects/answer.h"
#include "server/dialects/errors.h"
#include "server/dialects/llama/llama.h"
#include "server/dialects/openai/openai.h"
#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

HttpResponse health(const ServerApp& app, const HttpRequest&) {
  if (app.models().pool() == nullptr) app.models().only();  // throws while it is loaded
  return {.body = R"({"status":"ok"})"};
}

Json plan_json(const MemoryPlan& plan) {
  return {{"ceiling", plan.ceiling},          {"dense", plan.dense_bytes},
          {"context", plan.context_bytes},    {"workspace", plan.scratch_bytes()},
          {"drafts", plan.draft_bytes},       {"reader", plan.reader_bytes},
          {"tier", plan.tier_bytes},          {"program", plan.program_bytes},
          {"expert_cache", plan.cache_bytes}, {"expert_slots", plan.n_slots},
          {"experts", plan.max_slots}};
}

HttpResponse props(const ServerApp& app, const ModelRequest& asked) {
  const auto& service = asked.model.service;
  const Engine& engine = service->engine();
  const ModelFacts& facts = service->facts();
  const ReplyProfile& profile = service->prompt_maker().profile(true);
  Json special = Json::object();
  for (const auto& [name, text] : engine.tokenizer().special_tokens()) special[name] = text;
  const auto token_text = [&](std::optional<TokenId> token) {
    return token ? std::string(engine.tokenizer().token_bytes(*token)) : std::string();
  };
  const bool has_template = engine.has_chat_template();
  const Json chat_template = engine.source().text().chat_template;
  Json body = {{"default_generation_settings",
                {{"n_ctx", engine.context_length()},
                 {"params", llama_settings(service->default_sampling())}}},
               {"total_slots", service->options().n_parallel},
               {"model_alias", asked.model.name},
               {"model_path", engine.path()},
               {"modalities", {{"vision", false}, {"audio", false}}},
               {"endpoint_slots", true},
               {"endpoint_props", false},
               {"endpoint_metrics", true},
               {"chat_template", chat_template},
               {"chat_template_caps",
                {{"supports_tools", has_template && profile.format != ReplyFormat::Plain},
                 {"supports_tool_calls", has_template && profile.format != ReplyFormat::Plain},
                 {"supports_parallel_tool_calls", has_template && !profile.one_call},
                 {"supports_system_role", has_template},
                 {"supports_preserve_reasoning", has_template && profile.thinks}}},
               {"bos_token", token_text(engine.tokenizer().bos())},
               {"eos_token", token_text(engine.tokenizer().eos())},
               {"is_sleeping", false},
               {"special_tokens", std::move(special)},
               {"build_info", "moeflux-" + app.options().version},
               {"moeflux",
                {{"build", app.options().build},
                 {"family", engine.config().family},
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
                 {"speculative", service.engine().max_drafts() > 0},
                 {"is_processing", static_cast<std::size_t>(i) < stats.n_running}};
    if (!model.empty()) slot["model"] = model;
    list.push_back(std::move(slot));
  }
}

// Of the models in memory: none is loaded to be looked at.
Json slot_list(const ServerApp& app, const HttpRequest& request) {
  Json list = Json::array();
  ModelPool* pool = app.models().pool();
  if (pool == nullptr) {
    add_slots(list, *app.models().only().service, "");
    return list;
  }
  const std::string name = named_model(request, Json::object(), /*is_ollama=*/false);
  const std::string path = name.empty() ? "" : pool->find(name).path;
  for (const PoolModel& each : pool->loaded()) {
    if (path.empty() || each.entry.path == path)
      add_slots(list, *each.lease.service, each.entry.name);
  }
  return list;
}

HttpResponse slots(const ServerApp& app, const HttpRequest& request) {
  const Json list = slot_list(app, request);
  const auto must_be_free = request.query.find("fail_on_no_slot");
  const bool is_free = std::any_of(list.begin(), list.end(), [](const Json& slot) {
    return !slot.at("is_processing").get<bool>();
  });
  if (must_be_free != request.query.end() && must_be_free->second != "0" && !is_free)
    throw HttpError(503, "unavailable_error", "all sessions are busy")
        .with_header("Retry-After", "1");
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
  return bytes_json(bytes);
}

TokenId read_token(const RequestFields& fields, const char* field, const Json& token,
                   const GenerationService& service) {
  if (!token.is_number_integer() || token.get<std::int64_t>() < 0 ||
      token.get<std::int64_t>() >= service.engine().config().n_vocab) {
    fields.refuse(field, fmt::format("has {}, which is no token of this model",
                                     dump_json(token).substr(0, 80)));
  }
  return token.get<TokenId>();
}

HttpResponse tokenize(const ServerApp&, const ModelRequest& asked) {
  const Tokenizer& tokenizer = asked.model.service->tokenizer();
  const RequestFields fields(asked.body);
  const bool special = fields.boolean("parse_special").value_or(true);
  std::vector<TokenId> ids;
  const auto add = [&](const Json& part) {
    if (part.is_number_integer())
      return ids.push_back(read_token(fields, "content", part, *asked.model.service));
    if (!part.is_string())
      fields.refuse("content", "must be a text, or a list of texts and tokens");
    const auto& text = part.get_ref<const std::string&>();
    const std::vector<TokenId> more = naming("content", [&] {
      return special ? tokenizer.encode_markup(text) : tokenizer.encode_data(text);
    });
    ids.insert(ids.end(), more.begin(), more.end());
  };
  const Json* content = fields.find("content");
  if (content == nullptr) fields.refuse("content", "is missing");
  if (content->is_array())
    std::for_each(content->begin(), content->end(), add);
  else
    add(*content);
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
  std::vector<TokenId> ids;
  for (const Json& token : fields.required_array("tokens"))
    ids.push_back(read_token(fields, "tokens", token, *service));
  return {.body = dump_json({{"content", service->tokenizer().decode(ids)}})};
}

HttpResponse apply_template(const ServerApp&, const ModelRequest& asked) {
  const OpenAiRequest chat = read_chat_request(asked.body);
  return {.body = dump_json({{"prompt", asked.model.service->render(chat.generation).text}})};
}

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

// One of several models. More is known of one in memory.
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

HttpResponse list_models(const ServerApp& app, const HttpRequest&) {
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

void add_status_routes(ServerApp& app) {
  const auto add_for_model = [&](const char* method, const char* path, auto handler) {
    app.add_model_route(method, path,
                        {[&app, handler](const ModelRequest& request) {
                           request.exchange->respond(handler(app, request));
                         },
                         openai_error});
  };
  for (const char* path : {"/health", "/v1/health"})
    app.add_route("GET", path, health, openai_error, /*needs_key=*/false);
  app.add_route("GET", "/slots", slots, openai_error);
  app.add_route("GET", "/metrics", metrics, openai_error);
  add_for_model("GET", "/props", props);
  add_for_model("POST", "/tokenize", tokenize);
  add_for_model("POST", "/detokenize", detokenize);
  add_for_model("POST", "/apply-template", apply_template);
  for (const char* path : {"/v1/models", "/models"})
    app.add_route("GET", path, list_models, openai_error);
  for (const char* path : {"/v1/models/{model}", "/models/{model}"})
    app.add_route("GET", path, show_model, openai_error);
}

}  // namespace moeflux
