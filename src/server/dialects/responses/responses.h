// OpenAI's /v1/responses: bodies as requests to the model, and answers as a stream of events that
// build the response up, or the response at the end. The server keeps no responses.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/json.h"
#include "server/dialects/answer.h"
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
  // The client asked for a summary of the thought. There is none: it gets the thought in its place,
  // because that is what it shows.
  bool thought_as_summary = false;
  // What the response says of the request: instructions, tools, metadata, ...
  Json echo = Json::object();
};

// Unknown fields and tools of other types than function are ignored. Unknown values, and fields
// that need a server which keeps responses, throw HttpError 400 with their name.
ResponsesRequest read_responses_request(const Json& body);

std::unique_ptr<DialectAnswer> make_responses_answer(ExchangePtr exchange, AnswerModel model,
                                                     const ResponsesRequest& request);

}  // namespace moeflux
