// OpenAI's /v1/chat/completions and /v1/completions: bodies as requests to the model, and answers
// as a stream of chunks, or one response at the end.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/dialects/answer.h"
#include "server/dialects/request_fields.h"
#include "server/service/generation.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

struct OpenAiRequest {
  GenerationRequest generation;
  bool stream = false;
  bool include_usage = false;          // a chunk with the usage at the end of a stream
  bool return_progress = false;        // chunks while the prompt is read
  bool timings_per_token = false;      // in every chunk of a stream
  bool legacy_calls = false;           // functions and function_call, as before there were tools
  std::vector<std::string> echo = {};  // texts of the prompts, where they are wanted back
};

// Unknown fields are ignored; unknown values throw HttpError 400 with their name.
OpenAiRequest read_chat_request(const Json& body);
OpenAiRequest read_completion_request(const Json& body, const Tokenizer& tokenizer);

// The field "prompt": texts, lists of tokens, lists of both, {"prompt_string": text}; a list of
// such is several prompts. And what the answer must look like: response_format, grammar,
// json_schema.
std::vector<std::vector<TokenId>> read_prompts(const RequestFields& fields,
                                               const Tokenizer& tokenizer);
OutputFormat read_output(const RequestFields& fields);

// `version` is that of the server.
std::unique_ptr<DialectAnswer> make_chat_answer(ExchangePtr exchange, AnswerModel model,
                                                const std::string& version,
                                                const OpenAiRequest& request);
std::unique_ptr<DialectAnswer> make_text_answer(ExchangePtr exchange, AnswerModel model,
                                                const std::string& version,
                                                const OpenAiRequest& request);

}  // namespace moeflux
