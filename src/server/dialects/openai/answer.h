// Answers to /v1/chat/completions: as a stream of chunks, or as one response at the end.
#pragma once

#include <memory>

#include "server/dialects/openai/envelope.h"

namespace moeflux {

// Receives the events of one request and writes them to its exchange. Used by one thread at a time.
class OpenAiAnswer {
 public:
  virtual ~OpenAiAnswer() = default;
  virtual void begin() = 0;  // the request was accepted
  virtual void take(int choice, const GenerationEvent& event) = 0;
};

std::unique_ptr<OpenAiAnswer> make_chat_stream(ExchangePtr exchange, OpenAiEnvelope envelope,
                                               bool return_progress);
std::unique_ptr<OpenAiAnswer> make_chat_response(ExchangePtr exchange, OpenAiEnvelope envelope);

// The same for /v1/completions; `echo` is the text of each prompt, or nothing.
std::unique_ptr<OpenAiAnswer> make_text_stream(ExchangePtr exchange, OpenAiEnvelope envelope,
                                               const OpenAiRequest& request);
std::unique_ptr<OpenAiAnswer> make_text_response(ExchangePtr exchange, OpenAiEnvelope envelope,
                                                 const OpenAiRequest& request);

}  // namespace moeflux
