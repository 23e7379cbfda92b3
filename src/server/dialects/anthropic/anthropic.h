// Anthropic's /v1/messages: bodies as requests to the model, and answers as a stream of events, or
// one message at the end.
#pragma once

#include <memory>

#include "server/dialects/answer.h"
#include "server/service/generation.h"

namespace moeflux {

struct AnthropicRequest {
  GenerationRequest generation;
  bool stream = false;
  bool shows_thoughts = true;  // false: blocks of thinking stay empty
};

// Unknown fields are ignored, and so are tools that a server would have to bring itself. Unknown
// values throw HttpError 400 with their name.
AnthropicRequest read_anthropic_request(const Json& body);

// Only the fields that the prompt is made of, for /v1/messages/count_tokens.
GenerationRequest read_anthropic_prompt(const Json& body);

std::unique_ptr<DialectAnswer> make_anthropic_answer(ExchangePtr exchange, AnswerModel model,
                                                     const AnthropicRequest& request);

}  // namespace moeflux
