#include "server/openai_routes.h"

#include "server/openai_answer.h"
#include "server/openai_errors.h"
#include "server/request_fields.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

void run(GenerationService& service, const OpenAiRequest& request, const ExchangePtr& exchange,
         std::shared_ptr<OpenAiAnswer> answer) {
  const auto generation = service.start(
      request.generation,
      [answer](int choice, const GenerationEvent& event) { answer->take(choice, event); },
      [&] { answer->begin(); });
  exchange->on_gone([generation] { generation->cancel(); });
}

void answer_chat(const ServerApp& app, const HttpRequest& http, const ExchangePtr& exchange) {
  const auto service = app.service();
  const OpenAiRequest request = read_chat_request(parse_body(http));
  OpenAiEnvelope envelope({"chatcmpl-", "chat.completion", "chat.completion.chunk"},
                          app.options().model_id, app.options().version, service->facts(), request);
  run(*service, request, exchange,
      request.stream ? make_chat_stream(exchange, std::move(envelope), request.return_progress)
                     : make_chat_response(exchange, std::move(envelope)));
}

void answer_completion(const ServerApp& app, const HttpRequest& http, const ExchangePtr& exchange) {
  const auto service = app.service();
  const OpenAiRequest request = read_completion_request(parse_body(http), service->tokenizer());
  OpenAiEnvelope envelope({"cmpl-", "text_completion", "text_completion"}, app.options().model_id,
                          app.options().version, service->facts(), request);
  run(*service, request, exchange,
      request.stream ? make_text_stream(exchange, std::move(envelope), request)
                     : make_text_response(exchange, std::move(envelope), request));
}

}  // namespace

void add_openai_routes(ServerApp& app) {
  const auto add = [&](const char* path, auto handler) {
    app.router().add({"POST", path,
                      [&app, handler](const HttpRequest& request, const ExchangePtr& exchange) {
                        handler(app, request, exchange);
                      },
                      openai_error});
  };
  for (const char* path : {"/v1/chat/completions", "/chat/completions"}) add(path, answer_chat);
  for (const char* path : {"/v1/completions", "/completions", "/completion"})
    add(path, answer_completion);
}

}  // namespace moeflux
