#include "server/dialects/responses/routes.h"

#include "server/dialects/openai/errors.h"
#include "server/dialects/responses/answer.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

void answer_response(const ModelRequest& asked) {
  ResponsesRequest request = read_responses_request(asked.body);
  const GenerationService& service = *asked.model.service;
  const SamplingParams& defaults = service.default_sampling();
  if (request.echo["temperature"].is_null()) request.echo["temperature"] = defaults.temperature;
  if (request.echo["top_p"].is_null()) request.echo["top_p"] = defaults.top_p;
  const auto answer = std::make_shared<ResponsesAnswer>(
      asked.exchange, request, ResponsesAnswer::Facts{asked.model.name, service.facts()});
  start_answer(
      asked, request.generation,
      [answer](int, const GenerationEvent& event) { answer->take(event); },
      [&] { answer->begin(); });
}

}  // namespace

void add_responses_routes(ServerApp& app) {
  for (const char* path : {"/v1/responses", "/responses"})
    app.add_model_route("POST", path, {answer_response, openai_error});
}

}  // namespace moeflux
