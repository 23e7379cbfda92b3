#include "server/anthropic_routes.h"

#include "server/anthropic_answer.h"
#include "server/anthropic_errors.h"
#include "server/request_fields.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

void answer_message(const ServerApp& app, const HttpRequest& http, const ExchangePtr& exchange) {
  const auto service = app.service();
  const AnthropicRequest request = read_anthropic_request(parse_body(http));
  AnthropicAnswerOptions options{.model = app.options().model_id,
                                 .facts = service->facts(),
                                 .shows_thoughts = request.shows_thoughts};
  const std::shared_ptr<AnthropicAnswer> answer =
      request.stream ? make_anthropic_stream(exchange, std::move(options))
                     : make_anthropic_response(exchange, std::move(options));
  const auto generation = service->start(
      request.generation, [answer](int, const GenerationEvent& event) { answer->take(event); },
      [&] { answer->begin(); });
  exchange->on_gone([generation] { generation->cancel(); });
}

// Counts also what is longer than the context: that is what clients ask for.
void count_tokens(const ServerApp& app, const HttpRequest& http, const ExchangePtr& exchange) {
  const auto service = app.service();
  const GenerationRequest request = read_anthropic_prompt(parse_body(http));
  const std::size_t n_tokens = service->tokenizer().encode(service->render(request)).size();
  exchange->respond({.body = dump_json({{"input_tokens", n_tokens}}),
                     .headers = {{"request-id", new_request_id()}}});
}

}  // namespace

void add_anthropic_routes(ServerApp& app) {
  const auto add = [&](const char* path, auto handler) {
    app.router().add({"POST", path,
                      [&app, handler](const HttpRequest& request, const ExchangePtr& exchange) {
                        handler(app, request, exchange);
                      },
                      anthropic_error});
  };
  add("/v1/messages", answer_message);
  add("/v1/messages/count_tokens", count_tokens);
}

}  // namespace moeflux
