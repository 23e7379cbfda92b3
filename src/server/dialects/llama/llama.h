// llama-server's own /completion and /infill: bodies as requests to the model, and answers as a
// stream of objects, or one object (a list of several) at the end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/dialects/answer.h"
#include "server/service/generation.h"
#include "text/tokenizer/tokenizer.h"

namespace moeflux {

struct LlamaRequest {
  GenerationRequest generation;
  bool stream = false;
  bool return_progress = false;           // objects while the prompt is read
  bool timings_per_token = false;         // in every object of a stream
  bool return_tokens = false;             // ids of the answer; a stream always has them
  bool only_reads = false;                // n_predict 0: the prompt is read, and nothing is written
  std::vector<std::string> fields = {};   // of the answer that are wanted; none: all
  std::vector<std::string> prompts = {};  // as texts
  Json settings = Json::object();         // what the answer says of the request
};

// Unknown fields are ignored; unknown values throw HttpError 400 with their name. `defaults` are
// those of the model.
LlamaRequest read_llama_request(const Json& body, const Tokenizer& tokenizer,
                                const SamplingParams& defaults);
// The same with the prompt made of input_prefix, input_suffix, input_extra and prompt. Throws
// HttpError 501 for a model that has no tokens for it.
LlamaRequest read_infill_request(const Json& body, const Tokenizer& tokenizer,
                                 const SamplingParams& defaults);

// What stands for the parameters of a request, or of the server.
Json llama_settings(const SamplingParams& params);

std::unique_ptr<DialectAnswer> make_llama_answer(ExchangePtr exchange, AnswerModel model,
                                                 LlamaRequest request);

// ---- filling in the middle

struct InfillFile {
  std::string name, text;
};
struct InfillPrompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> ends;  // tokens that end the middle, besides the model's own
};
// Prefix, suffix and then the middle, which `begun` begins; files that belong to it come first.
// Nothing where the tokenizer has no tokens for it. Texts are data: no control token counts in
// them.
struct InfillParts {
  std::string prefix, suffix, begun;
  std::vector<InfillFile> files = {};
};
std::optional<InfillPrompt> infill_prompt(const Tokenizer& tokenizer, const InfillParts& parts);

}  // namespace moeflux
