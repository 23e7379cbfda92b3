// What the responses and chunks of one OpenAI answer have in common: the same id and time in all,
// the usage, and how the answer ends.
#pragma once

#include <string>
#include <vector>

#include "server/dialects/openai/request.h"
#include "server/http/exchange.h"
#include "server/service/run_report.h"

namespace moeflux {

class OpenAiEnvelope {
 public:
  struct Names {
    std::string id_prefix;     // "chatcmpl-"
    std::string object;        // "chat.completion"
    std::string chunk_object;  // "chat.completion.chunk"
  };
  OpenAiEnvelope(Names names, std::string model, std::string version, ModelFacts facts,
                 const OpenAiRequest& request);

  int n_choices() const { return n_choices_; }

  // One chunk of a stream with one choice, as an event.
  std::string chunk(Json choice) const;
  std::string progress_chunk(Json choice, const PromptProgress& progress) const;
  // The response with all choices.
  HttpResponse response(Json choices) const;

  // True when this was the last choice to end.
  bool add_ended(int choice, const GenerationEnded& ended);
  // The finish chunk of a choice, and after the last one what ends a stream.
  std::string finish_chunk(Json choice, bool last) const;

 private:
  Json head(bool is_chunk) const;
  void add_truth(Json& body) const;
  Json usage() const;

  Names names_;
  std::string id_, model_, version_;
  std::int64_t created_;
  ModelFacts facts_;
  int n_choices_, n_per_prompt_, n_ended_ = 0;
  bool include_usage_;
  AnswerTotals totals_;
};

std::string sse_event(const Json& data);  // "data: {...}\n\n"

// "stop", "length" or "tool_calls".
std::string_view openai_finish_reason(FinishReason reason);

}  // namespace moeflux
