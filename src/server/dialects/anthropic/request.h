// The bodies of Anthropic's requests, as requests to the model.
#pragma once

#include "server/service/generation.h"

namespace moeflux {

struct AnthropicRequest {
  GenerationRequest generation;
  bool stream = false;
  bool shows_thoughts = true;  // false: blocks of thinking stay empty
};

// Fields that are not known are ignored, and so are tools that a server would have to bring itself;
// values that are not known throw HttpError 400 with their name.
AnthropicRequest read_anthropic_request(const Json& body);

// Only what the prompt is made of, for /v1/messages/count_tokens.
GenerationRequest read_anthropic_prompt(const Json& body);

}  // namespace moeflux
