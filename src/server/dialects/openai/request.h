// The bodies of OpenAI's requests, as requests to the model.
#pragma once

#include <string>
#include <vector>

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

// Fields that are not known are ignored; values that are not throw HttpError 400 with their name.
OpenAiRequest read_chat_request(const Json& body);
OpenAiRequest read_completion_request(const Json& body, const Tokenizer& tokenizer);

}  // namespace moeflux
