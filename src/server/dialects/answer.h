// What the answers of all dialects have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/json.h"
#include "server/server_app.h"
#include "server/service/generation.h"

namespace moeflux {

// The model that answers say they are from.
struct AnswerModel {
  std::string name = {};
  ModelFacts facts = {};
};
AnswerModel model_of(const ModelRequest& request);

// Receives the events of one request and writes them to its exchange in the words of a dialect.
// Used by one thread at a time.
class DialectAnswer {
 public:
  DialectAnswer(ExchangePtr exchange, AnswerModel model)
      : exchange_(std::move(exchange)), model_(std::move(model)) {}
  virtual ~DialectAnswer() = default;
  virtual void begin() {}  // the request was accepted
  void take(int choice, const GenerationEvent& event) {
    std::visit([&](const auto& each) { on(choice, each); }, event);
  }

 protected:
  // A dialect has no words for what it does not override.
  virtual void on(int, const GenerationStarted&) {}
  virtual void on(int, const PromptProgress&) {}
  virtual void on(int, const TokenEvent&) {}
  virtual void on(int, const ContentDelta&) {}
  virtual void on(int, const ReasoningDelta&) {}
  virtual void on(int, const ToolCallBegin&) {}
  virtual void on(int, const ToolCallArguments&) {}
  virtual void on(int, const ToolCallEnd&) {}
  virtual void on(int, const GenerationEnded&) = 0;

  const ExchangePtr exchange_;
  const AnswerModel model_;
};

// Starts the generation, which ends by itself: whoever may cancel it does so with what is returned.
std::shared_ptr<Generation> start_generation(const ModelRequest& request,
                                             const GenerationRequest& generation,
                                             std::shared_ptr<DialectAnswer> answer);
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
