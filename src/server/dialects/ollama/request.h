// The bodies of Ollama's /api/chat and /api/generate, as requests to the model.
#pragma once

#include <string>

#include "server/service/generation.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

struct OllamaRequest {
  GenerationRequest generation;
  std::string model;       // as the client called it; the answer calls it the same
  bool stream = true;      // unless told otherwise
  bool only_load = false;  // there is nothing to answer: the client wants the model in memory
};

// How long a name in a request may be: it comes back in every line of the answer.
inline constexpr std::size_t kMaxModelName = 256;

// Fields that are not known are ignored, options too; values that are not throw HttpError 400 with
// their name. `context` is what the server holds: an options.num_ctx beyond it is refused, because
// the client would count on room that is not there.
OllamaRequest read_ollama_chat(const Json& body, std::int64_t context);
OllamaRequest read_ollama_generate(const Json& body, std::int64_t context,
                                   const Tokenizer& tokenizer);

// "model", or "name" of old; "" when there is neither.
std::string read_ollama_model(const Json& body);

}  // namespace moeflux
