// The input of a request to /v1/responses, as the messages of a chat.
#pragma once

#include "base/json.h"
#include "server/dialects/responses/tools.h"

namespace moeflux {

// `input` is a text or a list of items: messages, calls of functions and what they gave, thoughts.
// What a model wrote in one turn comes as several items and becomes one message again.
// `instructions` ("": none) come first. The messages are in the form of
// text/replies/reply_history.h. Calls of functions in namespaces get the names of `tools`. Throws
// HttpError 400 naming the item.
Json read_responses_input(const Json& input, const std::string& instructions,
                          const ResponsesTools& tools);

}  // namespace moeflux
