#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "server/dialects/errors.h"
#include "server/dialects/responses/responses.h"

namespace moeflux {
namespace {

using StorePtr = std::shared_ptr<ResponseStore>;

void answer_response(const StorePtr& store, const ModelRequest& asked) {
  ResponsesRequest request = read_responses_request(asked.body, *store);
  const GenerationService& service = *asked.model.service;
  const SamplingParams& defaults = service.default_sampling();
  if (request.echo["temperature"].is_null()) request.echo["temperature"] = defaults.temperature;
  if (request.echo["top_p"].is_null()) request.echo["top_p"] = defaults.top_p;
  ResponsesAnswerParts parts = make_responses_answer(asked.exchange, model_of(asked), request,
                                                     store, service.options().memory);
  try {
    if (!request.background)
      return start_answer(asked, request.generation, std::move(parts.answer));
    // It goes on when the client leaves, until it is cancelled by its id.
    store->set_running(parts.id,
                       start_generation(asked, request.generation, std::move(parts.answer)));
  } catch (...) {
    store->erase(parts.id);
    throw;
  }
}

void count_input(const StorePtr& store, const ModelRequest& asked) {
  const GenerationService& service = *asked.model.service;
  const ResponsesRequest request = read_responses_request(asked.body, *store);
  const std::size_t n_tokens =
      service.tokenizer().encode(service.render(request.generation)).size();
  asked.exchange->respond(
      {.body = dump_json({{"object", "response.input_tokens"}, {"input_tokens", n_tokens}})});
}

// ---- what is kept

const std::string& id_of(const HttpRequest& request) {
  return request.parameters.at("id");
}

template <class T>
T found(const HttpRequest& request, std::optional<T> what) {
  if (what) return std::move(*what);
  throw HttpError(
      404, "not_found_error",
      fmt::format("there is no response {} here (any more)", id_of(request).substr(0, 80)))
      .with_param("id");
}

Json retrieve(ResponseStore& store, const HttpRequest& request) {
  const auto stream = request.query.find("stream");
  if (stream != request.query.end() && stream->second == "true") {
    throw bad_request("stream is not supported here: ask for the response again until it has ended",
                      "stream");
  }
  return found(request, store.find(id_of(request)));
}

Json remove(ResponseStore& store, const HttpRequest& request) {
  found(request, store.erase(id_of(request)) ? std::optional(true) : std::nullopt);
  return {{"id", id_of(request)}, {"object", "response"}, {"deleted", true}};
}

Json cancel(ResponseStore& store, const HttpRequest& request) {
  const Json response = found(request, store.find(id_of(request)));
  if (!response.value("background", false)) {
    throw bad_request("only a response that was asked for with background can be cancelled", "id");
  }
  return found(request, store.cancel(id_of(request)));
}

// Newest first, unless ?order=asc; ?after=ID and ?limit=N.
Json input_items(ResponseStore& store, const HttpRequest& request) {
  Json items = found(request, store.input_of(id_of(request)));
  const auto query = [&](const char* name, std::string otherwise) {
    const auto given = request.query.find(name);
    return given == request.query.end() ? std::move(otherwise) : given->second;
  };
  const std::string order = query("order", "desc"), after = query("after", "");
  if (order != "asc" && order != "desc") throw bad_request("order must be asc or desc", "order");
  const auto limit = to_number<int>(query("limit", "20"));
  if (!limit || *limit < 1 || *limit > 100)
    throw bad_request("limit must be from 1 to 100", "limit");
  if (order == "desc") std::reverse(items.begin(), items.end());
  Json data = Json::array();
  bool is_behind = after.empty(), has_more = false;
  for (Json& item : items) {
    if (!is_behind) {
      is_behind = item.value("id", "") == after;
      continue;
    }
    has_more = data.size() == static_cast<std::size_t>(*limit);
    if (has_more) break;
    data.push_back(std::move(item));
  }
  const Json first = data.empty() ? Json(nullptr) : data.front().at("id");
  const Json last = data.empty() ? Json(nullptr) : data.back().at("id");
  return {{"object", "list"},
          {"data", std::move(data)},
          {"first_id", first},
          {"last_id", last},
          {"has_more", has_more}};
}

}  // namespace

void add_responses_routes(ServerApp& app) {
  const auto store = std::make_shared<ResponseStore>();
  for (const std::string path : {"/v1/responses", "/responses"}) {
    const auto add = [&](const char* method, const char* rest,
                         Json (*handler)(ResponseStore&, const HttpRequest&)) {
      app.add_route({.method = method,
                     .pattern = path + rest,
                     .handler =
                         [store, handler](const HttpRequest& request, const ExchangePtr& exchange) {
                           exchange->respond({.body = dump_json(handler(*store, request))});
                         },
                     .error_form = openai_error});
    };
    app.add_model_route(
        "POST", path,
        {[store](const ModelRequest& asked) { answer_response(store, asked); }, openai_error});
    app.add_model_route(
        "POST", path + "/input_tokens",
        {[store](const ModelRequest& asked) { count_input(store, asked); }, openai_error});
    add("POST", "/{id}/cancel", cancel);
    add("GET", "/{id}/input_items", input_items);
    add("GET", "/{id}", retrieve);
    add("DELETE", "/{id}", remove);
  }
}

}  // namespace moeflux
