// Answers to /v1/messages: as a stream of events, or as one message at the end.
#pragma once

#include <memory>
#include <string>

#include "server/dialects/anthropic/request.h"
#include "server/http/exchange.h"

namespace moeflux {

// Receives the events of one request and writes them to its exchange. Used by one thread at a time.
class AnthropicAnswer {
 public:
  virtual ~AnthropicAnswer() = default;
  virtual void begin() = 0;  // the request was accepted
  virtual void take(const GenerationEvent& event) = 0;
};

struct AnthropicAnswerOptions {
  std::string model = {};
  ModelFacts facts = {};
  bool shows_thoughts = true;
};

std::unique_ptr<AnthropicAnswer> make_anthropic_stream(ExchangePtr exchange,
                                                       AnthropicAnswerOptions options);
std::unique_ptr<AnthropicAnswer> make_anthropic_response(ExchangePtr exchange,
                                                         AnthropicAnswerOptions options);

}  // namespace moeflux
