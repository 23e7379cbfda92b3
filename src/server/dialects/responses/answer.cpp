#include <ctime>

#include <fmt/format.h>

#include "server/dialects/errors.h"
#include "server/dialects/responses/responses.h"

namespace moeflux {
namespace {

Json responses_usage(const AnswerTotals& totals) {
  return {{"input_tokens", totals.n_prompt},
          {"input_tokens_details", {{"cached_tokens", totals.n_cached}}},
          {"output_tokens", totals.n_generated},
          {"output_tokens_details", {{"reasoning_tokens", totals.n_reasoning}}},
          {"total_tokens", totals.n_prompt + totals.n_generated}};
}

void add_members(Json& to, const Json& members) {
  for (const auto& [name, value] : members.items()) to[name] = value;
}

// A stream and a single response are written by the same steps; without a stream the events are not
// sent.
class ResponsesAnswer final : public DialectAnswer {
 public:
  ResponsesAnswer(ExchangePtr exchange, AnswerModel model, const ResponsesRequest& request)
      : DialectAnswer(std::move(exchange), std::move(model)),
        stream_(request.stream),
        thought_as_summary_(request.thought_as_summary),
        echo_(request.echo),
        tools_(request.tools),
        id_("resp_" + random_id()),
        created_(std::time(nullptr)) {}

  void begin() override {
    if (!stream_) return;
    exchange_->begin_stream({});
    emit("response.created", {{"response", response("in_progress")}});
    emit("response.in_progress", {{"response", response("in_progress")}});
  }

 private:
  enum class Open { Nothing, Thought, Text, Call };

  void emit(std::string_view type, Json members) {
    if (!stream_) return;
    Json event = {{"type", type}, {"sequence_number", sequence_++}};
    add_members(event, members);
    exchange_->write(fmt::format("event: {}\ndata: {}\n\n", type, dump_json(event)));
  }

  Json response(const char* status) const {
    Json body = {{"id", id_},
                 {"object", "response"},
                 {"created_at", created_},
                 {"status", status},
                 {"background", false},
                 {"error", error_},
                 {"incomplete_details", incomplete_},
                 {"model", model_.name},
                 {"output", output_},
                 {"previous_response_id", nullptr},
                 {"store", false},
                 {"truncation", "disabled"}};
    add_members(body, echo_);
    body["usage"] = usage_;
    return body;
  }

  // ---- items: what the model is writing at the moment is the open one

  // The item and its index, as the events of the open item name it.
  Json item_place() const {
    return {{"item_id", item_.at("id")}, {"output_index", output_.size()}};
  }

  // With the index of its part.
  Json place() const {
    Json place = item_place();
    const bool is_summary = open_ == Open::Thought && thought_as_summary_;
    place[is_summary ? "summary_index" : "content_index"] = 0;
    return place;
  }

  // The part of the open item, with its text so far.
  Json part() const {
    if (open_ == Open::Thought)
      return {{"type", thought_as_summary_ ? "summary_text" : "reasoning_text"}, {"text", text_}};
    return {{"type", "output_text"},
            {"text", text_},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }

  std::string_view part_event(bool added) const {
    if (open_ == Open::Thought && thought_as_summary_) {
      return added ? "response.reasoning_summary_part.added"
                   : "response.reasoning_summary_part.done";
    }
    return added ? "response.content_part.added" : "response.content_part.done";
  }

  void open_item(Open kind, Json item) {
    close_item("completed");
    open_ = kind;
    item_ = std::move(item);
    text_.clear();
    emit("response.output_item.added", {{"output_index", output_.size()}, {"item", item_}});
    if (kind == Open::Call) return;
    Json members = place();
    members["part"] = part();
    emit(part_event(true), std::move(members));
  }

  void close_parts() {
    if (open_ == Open::Call) {
      item_["arguments"] = text_;
      Json done = item_place();
      done["name"] = item_.at("name");
      done["arguments"] = text_;
      return emit("response.function_call_arguments.done", std::move(done));
    }
    const bool is_summary = open_ == Open::Thought && thought_as_summary_;
    Json done = place();
    done["text"] = text_;
    if (open_ == Open::Text) {
      done["logprobs"] = Json::array();
      emit("response.output_text.done", std::move(done));
    } else {
      emit(is_summary ? "response.reasoning_summary_text.done" : "response.reasoning_text.done",
           std::move(done));
    }
    Json members = place();
    members["part"] = part();
    item_[is_summary ? "summary" : "content"] = Json::array({part()});
    emit(part_event(false), std::move(members));
  }

  void close_item(const char* status) {
    if (open_ == Open::Nothing) return;
    close_parts();
    item_["status"] = status;
    emit("response.output_item.done", {{"output_index", output_.size()}, {"item", item_}});
    output_.push_back(std::move(item_));
    open_ = Open::Nothing;
  }

  void add_delta(const char* type, const std::string& delta) {
    text_ += delta;
    Json members = open_ == Open::Call ? item_place() : place();
    members["delta"] = delta;
    if (open_ == Open::Text) members["logprobs"] = Json::array();
    emit(type, std::move(members));
  }

  // ---- events

  using DialectAnswer::on;
  void on(int, const ContentDelta& event) override {
    if (open_ != Open::Text) {
      open_item(Open::Text, {{"id", "msg_" + random_id()},
                             {"type", "message"},
                             {"status", "in_progress"},
                             {"role", "assistant"},
                             {"content", Json::array()}});
    }
    add_delta("response.output_text.delta", event.text);
  }
  void on(int, const ReasoningDelta& event) override {
    if (open_ != Open::Thought) {
      open_item(Open::Thought, {{"id", "rs_" + random_id()},
                                {"type", "reasoning"},
                                {"status", "in_progress"},
                                {"summary", Json::array()},
                                {"content", Json::array()}});
    }
    add_delta(thought_as_summary_ ? "response.reasoning_summary_text.delta"
                                  : "response.reasoning_text.delta",
              event.text);
  }
  void on(int, const ToolCallBegin& event) override {
    Json item = {{"id", "fc_" + random_id()}, {"type", "function_call"},
                 {"status", "in_progress"},   {"call_id", "call_" + random_id()},
                 {"name", event.name},        {"arguments", ""}};
    if (const auto found = tools_.names.find(event.name); found != tools_.names.end()) {
      item["name"] = found->second.name;
      item["namespace"] = found->second.space;
    }
    open_item(Open::Call, std::move(item));
  }
  void on(int, const ToolCallArguments& event) override {
    add_delta("response.function_call_arguments.delta", event.json);
  }
  void on(int, const ToolCallEnd& event) override {
    close_item(event.complete ? "completed" : "incomplete");
  }

  void fail_with(const HttpError& error) {
    if (!stream_) return exchange_->respond(openai_error(error));
    error_ = {{"code", "server_error"}, {"message", error.what()}};
    emit("response.failed", {{"response", response("failed")}});
    exchange_->finish();
  }
  void on(int, const GenerationEnded& event) override {
    AnswerTotals totals;
    totals.add(event, true);
    usage_ = responses_usage(totals);
    if (const auto error = answer_error(event)) return fail_with(*error);
    const bool cut = event.reason == FinishReason::Length;
    const char* status = cut ? "incomplete" : "completed";
    close_item(status);
    if (cut) incomplete_ = {{"reason", "max_output_tokens"}};
    Json body = response(status);
    add_run_report(body, model_.facts, totals);
    if (!stream_) return exchange_->respond({.body = dump_json(body)});
    emit(cut ? "response.incomplete" : "response.completed", {{"response", std::move(body)}});
    exchange_->finish();
  }

  const bool stream_, thought_as_summary_;
  const Json echo_;
  const ResponsesTools tools_;
  const std::string id_;
  const std::int64_t created_;
  std::int64_t sequence_ = 0;
  Json output_ = Json::array();  // items that are complete
  Open open_ = Open::Nothing;
  Json item_ = nullptr;
  std::string text_;  // of the open item
  Json usage_ = nullptr;
  Json error_ = nullptr;
  Json incomplete_ = nullptr;
};

}  // namespace

std::unique_ptr<DialectAnswer> make_responses_answer(ExchangePtr exchange, AnswerModel model,
                                                     const ResponsesRequest& request) {
  return std::make_unique<ResponsesAnswer>(std::move(exchange), std::move(model), request);
}

}  // namespace moeflux
