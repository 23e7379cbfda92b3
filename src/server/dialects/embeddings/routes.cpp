#include <chrono>

#include <fmt/format.h>

#include "server/dialects/answer.h"
#include "server/dialects/embeddings/embeddings.h"
#include "server/dialects/errors.h"
#include "server/dialects/ollama/ollama.h"
#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

using Rows = ReadingService::Rows;

// What has no room is too large, not the server's fault.
HttpError reading_error(const Error& error) {
  if (error.code() == Errc::OutOfMemory)
    return HttpError(413, "invalid_request_error", error.what());
  return to_http_error(error);
}

// Reads the texts, and answers with what `write` makes of the result on a worker: the engine's
// thread has better things to do. The model stays in memory until then.
void answer_reading(const ServerApp& app, const ModelRequest& asked, const ErrorForm& error_form,
                    ReadingService::Request reading, std::function<std::string(Rows&)> write) {
  auto done = [&app, error_form, exchange = asked.exchange, memory = asked.memory,
               held = asked.model.held, service = asked.model.service,
               write = std::move(write)](ReadingService::Result result) {
    const auto shared = std::make_shared<ReadingService::Result>(std::move(result));
    app.models().run_on_worker([=] {
      answering(*exchange, error_form, [&] {
        if (const auto* error = std::get_if<Error>(&*shared)) throw reading_error(*error);
        exchange->respond({.body = write(std::get<Rows>(*shared))});
      });
    });
  };
  asked.exchange->on_gone(
      asked.model.service->readings().start(std::move(reading), std::move(done)));
}

// What the answer takes: the floats, then their text.
void pay_for_embeddings(const ModelRequest& asked, const EmbeddingsRequest& request) {
  constexpr std::uint64_t kBytesPerValue = 24;
  const auto d = static_cast<std::uint64_t>(asked.model.service->engine().config().d_model);
  if (asked.memory) asked.memory->grow(request.texts.size() * d * kBytesPerValue, kMemoryPatience);
}

ReadingService::Request reading_of(EmbeddingsRequest& request) {
  return {.texts = std::move(request.texts), .kind = request.pooling, .reduce = {}};
}

// Calls each(text) for every embedding, finished.
template <class Each>
void for_each_embedding(Rows& rows, const EmbeddingsRequest& request, Each each) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    finish_embedding(rows[i], request);
    each(i, embedding_json(rows[i], request.is_base64));
  }
}

std::string json_text(const std::string& text) {
  return dump_json(Json(text));
}

void embed_openai(const ServerApp& app, const ModelRequest& asked) {
  EmbeddingsRequest request = read_embeddings_request(asked.body, "input", *asked.model.service);
  pay_for_embeddings(asked, request);
  const std::int64_t n_tokens = request.n_tokens();
  ReadingService::Request reading = reading_of(request);
  answer_reading(app, asked, openai_error, std::move(reading),
                 [request, n_tokens, model = asked.model.name](Rows& rows) {
                   std::string data;
                   for_each_embedding(rows, request, [&](std::size_t i, const std::string& text) {
                     data += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":{}}})",
                                         i == 0 ? "" : ",", i, text);
                   });
                   return fmt::format(R"({{"object":"list","data":[{}],"model":{},"usage":)"
                                      R"({{"prompt_tokens":{},"total_tokens":{}}}}})",
                                      data, json_text(model), n_tokens, n_tokens);
                 });
}

// llama-server's own form: a list with the rows of each text, of which there is one here.
void embed_llama(const ServerApp& app, const ModelRequest& asked) {
  const char* field = asked.body.contains("content") ? "content" : "input";
  EmbeddingsRequest request = read_embeddings_request(asked.body, field, *asked.model.service);
  // -1: none; 2: as ever. The other norms are not for comparing directions.
  const auto norm = RequestFields(asked.body).integer("embd_normalize", -1, 2).value_or(2);
  if (norm != -1 && norm != 2)
    RequestFields(asked.body).refuse("embd_normalize", "must be 2, or -1 for none");
  request.normalizes = norm == 2;
  pay_for_embeddings(asked, request);
  ReadingService::Request reading = reading_of(request);
  answer_reading(app, asked, openai_error, std::move(reading), [request](Rows& rows) {
    std::string data;
    for_each_embedding(rows, request, [&](std::size_t i, const std::string& text) {
      data += fmt::format(R"({}{{"index":{},"embedding":[{}]}})", i == 0 ? "" : ",", i, text);
    });
    return fmt::format("[{}]", data);
  });
}

bool is_empty_text(const Json* value) {
  return value == nullptr || (value->is_string() && value->get_ref<const std::string&>().empty()) ||
         (value->is_array() && value->empty());
}

void embed_ollama(const ServerApp& app, const ModelRequest& asked, bool is_old) {
  const auto start = std::chrono::steady_clock::now();
  const RequestFields fields(asked.body);
  std::string model = read_ollama_model(asked.body);
  if (model.empty()) model = asked.model.name;
  const char* field = is_old ? "prompt" : "input";
  if (is_empty_text(fields.find(field))) {  // the client wants the model in memory
    return asked.exchange->respond(
        {.body = is_old ? R"({"embedding":[]})"
                        : fmt::format(R"({{"model":{},"embeddings":[]}})", json_text(model))});
  }
  EmbeddingsRequest request = read_embeddings_request(asked.body, field, *asked.model.service,
                                                      fields.boolean("truncate").value_or(false));
  request.is_base64 = false;
  pay_for_embeddings(asked, request);
  const std::int64_t n_tokens = request.n_tokens();
  ReadingService::Request reading = reading_of(request);
  answer_reading(app, asked, ollama_error, std::move(reading), [=](Rows& rows) {
    std::string data;
    for_each_embedding(rows, request, [&](std::size_t i, const std::string& text) {
      data += (i == 0 ? "" : ",") + text;
    });
    if (is_old) return fmt::format(R"({{"embedding":{}}})", data);
    const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::steady_clock::now() - start);
    return fmt::format(R"({{"model":{},"embeddings":[{}],"total_duration":{},)"
                       R"("load_duration":0,"prompt_eval_count":{}}})",
                       json_text(model), data, nanoseconds.count(), n_tokens);
  });
}

void rerank(const ServerApp& app, const ModelRequest& asked) {
  const GenerationService& service = *asked.model.service;
  RerankRequest request = read_rerank_request(asked.body);
  const auto judge = std::make_shared<const YesOrNo>(service.tokenizer());
  ReadingService::Request reading{.texts = {},
                                  .kind = ReadingKind::Logits,
                                  .reduce = [judge](const std::vector<float>& logits) {
                                    return std::vector<float>{judge->log_odds(logits)};
                                  }};
  std::int64_t n_tokens = 0;
  for (const std::string& document : request.documents) {
    auto prompts = service.prompt_maker().make(rerank_prompt(request, document));
    n_tokens += std::ssize(prompts.front().tokens);
    reading.texts.push_back(std::move(prompts.front().tokens));
  }
  answer_reading(app, asked, openai_error, std::move(reading),
                 [request = std::move(request), n_tokens, model = asked.model.name](Rows& rows) {
                   std::vector<float> log_odds;
                   for (const std::vector<float>& row : rows) log_odds.push_back(row.front());
                   return rerank_json(request, log_odds, model, n_tokens);
                 });
}

}  // namespace

void add_embedding_routes(ServerApp& app) {
  const auto add = [&](const char* path, auto handler) {
    app.add_model_route(
        "POST", path,
        {[&app, handler](const ModelRequest& request) { handler(app, request); }, openai_error});
  };
  for (const char* path : {"/v1/embeddings", "/embeddings"}) add(path, embed_openai);
  add("/embedding", embed_llama);
  for (const char* path : {"/v1/rerank", "/rerank", "/v1/reranking", "/reranking"})
    add(path, rerank);
  for (const auto& [path, is_old] : {std::pair("/api/embed", false), {"/api/embeddings", true}}) {
    app.add_model_route(
        "POST", path,
        {.handler = [&app, is_old = is_old](
                        const ModelRequest& request) { embed_ollama(app, request, is_old); },
         .error_form = ollama_error,
         .is_ollama = true,
         .without_model = {}});
  }
}

}  // namespace moeflux
