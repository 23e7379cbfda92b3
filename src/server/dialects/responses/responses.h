// OpenAI's /v1/responses: bodies as requests to the model, and answers as a stream of events that
// build the response up, or the response at the end. Responses are kept for a while (store.h).
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/json.h"
#include "server/dialects/answer.h"
#include "server/dialects/responses/store.h"
#include "server/service/generation.h"

namespace moeflux {

// The tools of a request. They may come in namespaces, one for each of a client's tool servers;
// calls then name theirs. A model sees plain functions.
struct ResponsesTools {
  struct Name {
    std::string space, name;
  };
  Json functions = nullptr;           // as /v1/chat/completions has them; null: none were given
  std::map<std::string, Name> names;  // of those in a namespace, by what the model calls them

  // What the model calls a function of a namespace; "": of none.
  std::string shown(const std::string& space, const std::string& name) const;
};

struct ResponsesRequest {
  GenerationRequest generation;
  ResponsesTools tools;
  bool stream = false;
  bool store = true;                 // keep the response
  bool background = false;           // answer at once; the client asks for the response later
  bool encrypts = false;             // thoughts also as a text that clients give back unread
  std::string previous = {};         // the response that this one goes on from
  Json input_items = Json::array();  // the input as items, each with an id
  // The client asked for a summary of the thought. There is none: it gets the thought in its place,
  // because that is what it shows.
  bool thought_as_summary = false;
  // What the response says of the request: instructions, tools, metadata, ...
  Json echo = Json::object();
};

// Unknown fields and tools of other types than function are ignored. Unknown values throw HttpError
// 400 with their name, and so do responses and items that `store` does not have.
ResponsesRequest read_responses_request(const Json& body, const ResponseStore& store);

// A thought as text for clients that give it back unread.
std::string seal_thought(const std::string& thought);

// With the id of the response, which the store knows it by if it is kept.
struct ResponsesAnswerParts {
  std::string id;
  std::unique_ptr<DialectAnswer> answer;
};
ResponsesAnswerParts make_responses_answer(ExchangePtr exchange, AnswerModel model,
                                           const ResponsesRequest& request,
                                           std::shared_ptr<ResponseStore> store,
                                           RequestMemoryPtr memory);

// /v1/responses and all below it, also without /v1.
void add_responses_routes(ServerApp& app);

}  // namespace moeflux
