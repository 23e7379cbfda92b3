// Answers to /v1/responses: a stream of events that build the response up, or the response at the
// end. Both are written by the same steps; without a stream the events go nowhere.
#pragma once

#include <string>

#include "server/dialects/responses/request.h"
#include "server/http/exchange.h"

namespace moeflux {

class ResponsesAnswer {
 public:
  struct Facts {
    std::string model;
    ModelFacts engine;
  };
  ResponsesAnswer(ExchangePtr exchange, const ResponsesRequest& request, Facts facts);

  void begin();  // the request was accepted
  void take(const GenerationEvent& event);

 private:
  // What the model is writing at the moment: one item of the output.
  enum class Open { Nothing, Thought, Text, Call };

  void on(const GenerationStarted&) {}
  void on(const PromptProgress&) {}
  void on(const TokenEvent&) {}
  void on(const ContentDelta& event);
  void on(const ReasoningDelta& event);
  void on(const ToolCallBegin& event);
  void on(const ToolCallArguments& event);
  void on(const ToolCallEnd& event);
  void on(const GenerationEnded& event);

  void open_item(Open kind, Json item);
  void close_item(const char* status);
  void close_parts();
  void add_delta(const char* type, const std::string& delta);
  Json part() const;  // of the open item, with its text so far
  std::string_view part_event(bool added) const;
  Json place() const;       // item and indices, as the events of the open item name it
  Json item_place() const;  // without the part's

  Json response(const char* status) const;
  void fail_with(const HttpError& error);
  void emit(std::string_view type, Json members);

  ExchangePtr exchange_;
  bool stream_, thought_as_summary_;
  Facts facts_;
  Json echo_;
  ResponsesTools tools_;
  std::string id_;
  std::int64_t created_;
  std::int64_t sequence_ = 0;
  Json output_ = Json::array();  // items that are complete
  Open open_ = Open::Nothing;
  Json item_ = nullptr;
  std::string text_;  // of the open item
  Json usage_ = nullptr;
  Json error_ = nullptr;
  Json incomplete_ = nullptr;
};

}  // namespace moeflux
