// Answers to Ollama's /api/chat and /api/generate: a stream of lines, each a JSON object, or one
// such object at the end.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "server/dialects/ollama/request.h"
#include "server/http/exchange.h"

namespace moeflux {

enum class OllamaKind { Chat, Generate };

// {"error": "..."}, which is all that this dialect says of an error.
Json ollama_error_json(const HttpError& error);
HttpResponse ollama_error(const HttpError& error);

// "2026-01-31T12:00:00.123456789Z"
std::string ollama_time(std::chrono::system_clock::time_point time);

// Receives the events of one request and writes them to its exchange. Used by one thread at a time.
class OllamaAnswer {
 public:
  OllamaAnswer(OllamaKind kind, ExchangePtr exchange, std::string model, bool stream,
               ModelFacts facts);

  void begin();  // the request was accepted
  void take(const GenerationEvent& event);
  // Instead of both: there is nothing to say, the model is here, or gone ("unload").
  void load(const char* reason = "load");

 private:
  struct Part {
    std::string content = {}, thinking = {};
    Json calls = Json::array();
    Json logprobs = Json::array();
  };
  void on(const GenerationStarted&) {}
  void on(const PromptProgress&) {}
  void on(const TokenEvent& event);
  void on(const ContentDelta& event);
  void on(const ReasoningDelta& event);
  void on(const ToolCallBegin& event);
  void on(const ToolCallArguments& event);
  void on(const ToolCallEnd& event);
  void on(const GenerationEnded& event);
  void flush();  // sends what there is of a stream
  Json object_of(Part part, bool done) const;

  OllamaKind kind_;
  ExchangePtr exchange_;
  std::string model_;
  bool stream_;
  ModelFacts facts_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Part part_;  // not sent yet
  ToolCall call_;
};

}  // namespace moeflux
