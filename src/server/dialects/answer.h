// What the answers of all dialects have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/server_app.h"
#include "server/service/generation.h"

namespace moeflux {

// Receives the events of one request and writes them to its exchange in the words of a dialect.
// Used by one thread at a time.
class DialectAnswer {
 public:
  virtual ~DialectAnswer() = default;
  virtual void begin() = 0;  // the request was accepted
  virtual void take(int choice, const GenerationEvent& event) = 0;
};

// The model that answers say they are from.
struct AnswerModel {
  std::string name = {};
  ModelFacts facts = {};
};
AnswerModel model_of(const ModelRequest& request);

// Starts the generation, which is cancelled when the client leaves. The model stays in memory until
// the answer has ended. Throws as GenerationService::start().
void start_answer(const ModelRequest& request, const GenerationRequest& generation,
                  std::shared_ptr<DialectAnswer> answer);

// Why an answer failed; nothing where it ended well.
std::optional<HttpError> answer_error(const GenerationEnded& ended);

// Adds "timings" and "moeflux" (run_report.h).
void add_run_report(Json& body, const ModelFacts& facts, const AnswerTotals& totals);

std::string random_id();                  // 24 letters and digits, new every time
Json bytes_json(std::string_view bytes);  // a list of numbers
// {"token", "logprob", "bytes"}
Json candidate_json(const TokenCandidate& candidate);
// The arguments of a call as an object, which clients rely on: a model may write something else.
Json arguments_json(const std::string& text);

}  // namespace moeflux
