#include "server/dialects/openai/routes.h"

#include "server/dialects/openai/answer.h"
#include "server/dialects/openai/errors.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

void run(const ModelRequest& asked, const OpenAiRequest& request,
         std::shared_ptr<OpenAiAnswer> answer) {
  start_answer(
      asked, request.generation,
      [answer](int choice, const GenerationEvent& event) { answer->take(choice, event); },
      [&] { answer->begin(); });
}

void answer_chat(const ServerApp& app, const ModelRequest& asked) {
  const OpenAiRequest request = read_chat_request(asked.body);
  OpenAiEnvelope envelope({"chatcmpl-", "chat.completion", "chat.completion.chunk"},
                          asked.model.name, app.options().version, asked.model.service->facts(),
                          request);
  run(asked, request,
      request.stream
          ? make_chat_stream(asked.exchange, std::move(envelope), request.return_progress)
          : make_chat_response(asked.exchange, std::move(envelope)));
}

void answer_completion(const ServerApp& app, const ModelRequest& asked) {
  asked.model.service->prompt_maker().check_texts(asked.body);
  const OpenAiRequest request =
      read_completion_request(asked.body, asked.model.service->tokenizer());
  OpenAiEnvelope envelope({"cmpl-", "text_completion", "text_completion"}, asked.model.name,
                          app.options().version, asked.model.service->facts(), request);
  run(asked, request,
      request.stream ? make_text_stream(asked.exchange, std::move(envelope), request)
                     : make_text_response(asked.exchange, std::move(envelope), request));
}

}  // namespace

void add_openai_routes(ServerApp& app) {
  const auto add = [&](const char* path, auto handler) {
    app.add_model_route(
        "POST", path,
        {[&app, handler](const ModelRequest& request) { handler(app, request); }, openai_error});
  };
  for (const char* path : {"/v1/chat/completions", "/chat/completions"}) add(path, answer_chat);
  for (const char* path : {"/v1/completions", "/completions", "/completion"})
    add(path, answer_completion);
}

}  // namespace moeflux
