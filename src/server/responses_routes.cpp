#include "server/responses_routes.h"

#include "server/openai_errors.h"
#include "server/request_fields.h"
#include "server/responses_answer.h"
#include "server/server_app.h"

namespace moeflux {
namespace {

void answer_response(const ServerApp& app, const HttpRequest& http, const ExchangePtr& exchange) {
  const auto service = app.service();
  ResponsesRequest request = read_responses_request(parse_body(http));
  const SamplingParams& defaults = service->default_sampling();
  if (request.echo["temperature"].is_null()) request.echo["temperature"] = defaults.temperature;
  if (request.echo["top_p"].is_null()) request.echo["top_p"] = defaults.top_p;
  const auto answer = std::make_shared<ResponsesAnswer>(
      exchange, request, ResponsesAnswer::Facts{app.options().model_id, service->facts()});
  const auto generation = service->start(
      request.generation, [answer](int, const GenerationEvent& event) { answer->take(event); },
      [&] { answer->begin(); });
  exchange->on_gone([generation] { generation->cancel(); });
}

}  // namespace

void add_responses_routes(ServerApp& app) {
  for (const char* path : {"/v1/responses", "/responses"}) {
    app.router().add({"POST", path,
                      [&app](const HttpRequest& request, const ExchangePtr& exchange) {
                        answer_response(app, request, exchange);
                      },
                      openai_error});
  }
}

}  // namespace moeflux
