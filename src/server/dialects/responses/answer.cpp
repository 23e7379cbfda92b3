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
  ResponsesAnswer(ExchangePtr exchange, AnswerModel model, const ResponsesRequest& request,
                  std::shared_ptr<ResponseStore> store, RequestMemoryPtr memory)
      : DialectAnswer(std::move(exchange), std::move(model)),
        stream_(request.stream),
        background_(request.background),
        encrypts_(request.encrypts),
        previous_(request.previous),
        store_(request.store ? std::move(store) : nullptr),
        memory_(std::move(memory)),
        input_(request.input_items),
        thought_as_summary_(request.thought_as_summary),
        echo_(request.echo),
        tools_(request.tools),
        id_("resp_" + random_id()),
        created_(std::time(nullptr)) {}

  const std::string& id() const { return id_; }

  // Before the request starts. Throws HttpError 503 for one that is of no use unless it is kept.
  void store_begun() {
    if (!store_ ||
        store_->put(id_, response(first_status()), std::move(input_), previous_, memory_))
      return;
    store_ = nullptr;
    if (!background_) return;
    throw HttpError(503, "unavailable_error",
                    "there is no memory left to keep a response that is asked for later")
        .with_header("Retry-After", "30");
  }

  void begin() override {
    const char* status = first_status();
    if (!stream_) {
      if (background_) exchange_->respond({.body = dump_json(response(status))});
      return;
    }
    exchange_->begin_stream({});
    emit("response.created", {{"response", response(status)}});
    if (background_) emit("response.queued", {{"response", response(status)}});
    if (!background_) emit("response.in_progress", {{"response", response(status)}});
  }

 private:
  const char* first_status() const { return background_ ? "queued" : "in_progress"; }
  void keep(const Json& body) {
    if (store_) store_->update(id_, body);
  }
  // A response that is asked for later has been answered already.
  void finish_with(HttpResponse response) {
    if (!background_) exchange_->respond(std::move(response));
  }

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
                 {"background", background_},
                 {"error", error_},
                 {"incomplete_details", incomplete_},
                 {"model", model_.name},
                 {"output", output_},
                 {"previous_response_id", previous_.empty() ? Json(nullptr) : Json(previous_)},
                 {"store", store_ != nullptr},
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
            {"logprobs", logprobs_}};
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
    logprobs_ = Json::array();
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
      done["logprobs"] = logprobs_;
      emit("response.output_text.done", std::move(done));
    } else {
      emit(is_summary ? "response.reasoning_summary_text.done" : "response.reasoning_text.done",
           std::move(done));
    }
    Json members = place();
    members["part"] = part();
    item_[is_summary ? "summary" : "content"] = Json::array({part()});
    if (encrypts_ && open_ == Open::Thought) item_["encrypted_content"] = seal_thought(text_);
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
    if (open_ == Open::Text) {
      members["logprobs"] = take_logprobs(delta.size());
      for (const Json& each : members["logprobs"]) logprobs_.push_back(each);
    }
    emit(type, std::move(members));
  }

  // Those of the tokens that a text of so many bytes is of: markers before it have no text.
  Json take_logprobs(std::size_t n_bytes) {
    std::size_t first = tokens_.size(), n = 0;
    while (first > 0 && n < n_bytes) n += tokens_[--first].token.bytes.size();
    Json list = Json::array();
    for (; first < tokens_.size(); ++first) {
      Json token = candidate_json(tokens_[first].token);
      token["top_logprobs"] = Json::array();
      for (const TokenCandidate& each : tokens_[first].top)
        token["top_logprobs"].push_back(candidate_json(each));
      list.push_back(std::move(token));
    }
    tokens_.clear();
    return list;
  }

  // ---- events

  using DialectAnswer::on;
  void on(int, const GenerationStarted&) override {
    if (!background_) return;
    Json body = response("in_progress");
    keep(body);
    emit("response.in_progress", {{"response", std::move(body)}});
  }
  void on(int, const TokenEvent& event) override { tokens_.push_back(event); }
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
    tokens_.clear();
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

  void fail_with(const HttpError& error, bool was_cancelled) {
    error_ = {{"code", "server_error"}, {"message", error.what()}};
    Json body = response(was_cancelled ? "cancelled" : "failed");
    keep(body);
    if (!stream_) return finish_with(openai_error(error));
    emit("response.failed", {{"response", std::move(body)}});
    exchange_->finish();
  }
  void on(int, const GenerationEnded& event) override {
    AnswerTotals totals;
    totals.add(event, true);
    usage_ = responses_usage(totals);
    if (const auto error = answer_error(event))
      return fail_with(*error, event.reason == FinishReason::Cancelled);
    const bool cut = event.reason == FinishReason::Length;
    const char* status = cut ? "incomplete" : "completed";
    close_item(status);
    if (cut) incomplete_ = {{"reason", "max_output_tokens"}};
    Json body = response(status);
    add_run_report(body, model_.facts, totals);
    keep(body);
    if (!stream_) return finish_with({.body = dump_json(body)});
    emit(cut ? "response.incomplete" : "response.completed", {{"response", std::move(body)}});
    exchange_->finish();
  }

  const bool stream_, background_, encrypts_;
  const std::string previous_;
  std::shared_ptr<ResponseStore> store_;  // null: the response is not kept
  const RequestMemoryPtr memory_;
  Json input_;
  const bool thought_as_summary_;
  const Json echo_;
  const ResponsesTools tools_;
  const std::string id_;
  const std::int64_t created_;
  std::int64_t sequence_ = 0;
  Json output_ = Json::array();  // items that are complete
  Open open_ = Open::Nothing;
  Json item_ = nullptr;
  std::string text_;                // of the open item
  Json logprobs_ = Json::array();   // of the open text
  std::vector<TokenEvent> tokens_;  // whose text has not come yet
  Json usage_ = nullptr;
  Json error_ = nullptr;
  Json incomplete_ = nullptr;
};

}  // namespace

ResponsesAnswerParts make_responses_answer(ExchangePtr exchange, AnswerModel model,
                                           const ResponsesRequest& request,
                                           std::shared_ptr<ResponseStore> store,
                                           RequestMemoryPtr memory) {
  auto answer = std::make_unique<ResponsesAnswer>(std::move(exchange), std::move(model), request,
                                                  std::move(store), std::move(memory));
  answer->store_begun();
  std::string id = answer->id();
  return {std::move(id), std::move(answer)};
}

}  // namespace moeflux
