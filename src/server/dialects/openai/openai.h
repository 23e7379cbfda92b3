// OpenAI's /v1/chat/completions and /v1/completions: bodies as requests to the model, and answers
// as a stream of chunks, or one response at the end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/dialects/answer.h"
#include "server/service/generation.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

struct OpenAiRequest {
  GenerationRequest generation;
  bool stream = false;
  bool include_usage = false;          // a chunk with the usage at the end of a stream
  bool return_progress = false;        // chunks while the prompt is read
  std::vector<std::string> echo = {};  // texts of the prompts, where they are wanted back
};

// Unknown fields are ignored; unknown values throw HttpError 400 with their name.
OpenAiRequest read_chat_request(const Json& body);
OpenAiRequest read_completion_request(const Json& body, const Tokenizer& tokenizer);

// `version` is that of the server.
std::unique_ptr<DialectAnswer> make_chat_answer(ExchangePtr exchange, AnswerModel model,
                                                const std::string& version,
                                                const OpenAiRequest& request);
std::unique_ptr<DialectAnswer> make_text_answer(ExchangePtr exchange, AnswerModel model,
                                                const std::string& version,
                                                const OpenAiRequest& request);

}  // namespace moeflux
