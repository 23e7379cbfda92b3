#include "server/dialects/anthropic/routes.h"

#include "server/dialects/anthropic/answer.h"
#include "server/dialects/anthropic/errors.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

void answer_message(const ModelRequest& asked) {
  const AnthropicRequest request = read_anthropic_request(asked.body);
  AnthropicAnswerOptions options{.model = asked.model.name,
                                 .facts = asked.model.service->facts(),
                                 .shows_thoughts = request.shows_thoughts};
  const std::shared_ptr<AnthropicAnswer> answer =
      request.stream ? make_anthropic_stream(asked.exchange, std::move(options))
                     : make_anthropic_response(asked.exchange, std::move(options));
  start_answer(
      asked, request.generation,
      [answer](int, const GenerationEvent& event) { answer->take(event); },
      [&] { answer->begin(); });
}

// Counts also what is longer than the context: that is what clients ask for.
void count_tokens(const ModelRequest& asked) {
  const GenerationService& service = *asked.model.service;
  const GenerationRequest request = read_anthropic_prompt(asked.body);
  const std::size_t n_tokens = service.tokenizer().encode(service.render(request)).size();
  asked.exchange->respond({.body = dump_json({{"input_tokens", n_tokens}}),
                           .headers = {{"request-id", new_request_id()}}});
}

}  // namespace

void add_anthropic_routes(ServerApp& app) {
  app.add_model_route("POST", "/v1/messages", {answer_message, anthropic_error});
  app.add_model_route("POST", "/v1/messages/count_tokens", {count_tokens, anthropic_error});
}

}  // namespace moeflux
