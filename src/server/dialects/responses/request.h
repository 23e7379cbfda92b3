// The body of a request to OpenAI's /v1/responses, as a request to the model.
#pragma once

#include "server/dialects/responses/tools.h"
#include "server/service/generation.h"

namespace moeflux {

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

// Fields that are not known are ignored, tools of other types than function too; values that are
// not throw HttpError 400 with their name, and so does what needs a server that keeps responses.
ResponsesRequest read_responses_request(const Json& body);

}  // namespace moeflux
