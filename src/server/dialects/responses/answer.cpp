#include "server/dialects/responses/answer.h"

#include <ctime>

#include <fmt/format.h>

#include "server/dialects/openai/errors.h"
#include "server/service/answer_parts.h"
#include "server/service/run_report.h"

namespace moeflux {
namespace {

Json usage_json(const AnswerTotals& totals) {
  return {{"input_tokens", totals.n_prompt},
          {"input_tokens_details", {{"cached_tokens", totals.n_cached}}},
          {"output_tokens", totals.n_generated},
          {"output_tokens_details", {{"reasoning_tokens", totals.n_reasoning}}},
          {"total_tokens", totals.n_prompt + totals.n_generated}};
}

void append(Json& to, const Json& members) {
  for (const auto& [name, value] : members.items()) to[name] = value;
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(ExchangePtr exchange, const ResponsesRequest& request, Facts facts)
    : exchange_(std::move(exchange)),
      stream_(request.stream),
      thought_as_summary_(request.thought_as_summary),
      facts_(std::move(facts)),
      echo_(request.echo),
      tools_(request.tools),
      id_("resp_" + random_id()),
      created_(std::time(nullptr)) {}

void ResponsesAnswer::begin() {
  if (!stream_) return;
  exchange_->begin_stream({});
  emit("response.created", {{"response", response("in_progress")}});
  emit("response.in_progress", {{"response", response("in_progress")}});
}

void ResponsesAnswer::take(const GenerationEvent& event) {
  std::visit([this](const auto& each) { on(each); }, event);
}

void ResponsesAnswer::emit(std::string_view type, Json members) {
  if (!stream_) return;
  Json event = {{"type", type}, {"sequence_number", sequence_++}};
  append(event, members);
  exchange_->write(fmt::format("event: {}\ndata: {}\n\n", type, dump_json(event)));
}

Json ResponsesAnswer::response(const char* status) const {
  Json body = {{"id", id_},
               {"object", "response"},
               {"created_at", created_},
               {"status", status},
               {"background", false},
               {"error", error_},
               {"incomplete_details", incomplete_},
               {"model", facts_.model},
               {"output", output_},
               {"previous_response_id", nullptr},
               {"store", false},
               {"truncation", "disabled"}};
  append(body, echo_);
  body["usage"] = usage_;
  return body;
}

// ---- items

Json ResponsesAnswer::item_place() const {
  return {{"item_id", item_.at("id")}, {"output_index", output_.size()}};
}

Json ResponsesAnswer::place() const {
  Json place = item_place();
  const bool is_summary = open_ == Open::Thought && thought_as_summary_;
  place[is_summary ? "summary_index" : "content_index"] = 0;
  return place;
}

Json ResponsesAnswer::part() const {
  if (open_ == Open::Thought)
    return {{"type", thought_as_summary_ ? "summary_text" : "reasoning_text"}, {"text", text_}};
  return {{"type", "output_text"},
          {"text", text_},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

std::string_view ResponsesAnswer::part_event(bool added) const {
  if (open_ == Open::Thought && thought_as_summary_) {
    return added ? "response.reasoning_summary_part.added" : "response.reasoning_summary_part.done";
  }
  return added ? "response.content_part.added" : "response.content_part.done";
}

void ResponsesAnswer::open_item(Open kind, Json item) {
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

void ResponsesAnswer::close_parts() {
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

void ResponsesAnswer::close_item(const char* status) {
  if (open_ == Open::Nothing) return;
  close_parts();
  item_["status"] = status;
  emit("response.output_item.done", {{"output_index", output_.size()}, {"item", item_}});
  output_.push_back(std::move(item_));
  open_ = Open::Nothing;
}

void ResponsesAnswer::add_delta(const char* type, const std::string& delta) {
  text_ += delta;
  Json members = open_ == Open::Call ? item_place() : place();
  members["delta"] = delta;
  if (open_ == Open::Text) members["logprobs"] = Json::array();
  emit(type, std::move(members));
}

// ---- events

void ResponsesAnswer::on(const ContentDelta& event) {
  if (open_ != Open::Text) {
    open_item(Open::Text, {{"id", "msg_" + random_id()},
                           {"type", "message"},
                           {"status", "in_progress"},
                           {"role", "assistant"},
                           {"content", Json::array()}});
  }
  add_delta("response.output_text.delta", event.text);
}

void ResponsesAnswer::on(const ReasoningDelta& event) {
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

void ResponsesAnswer::on(const ToolCallBegin& event) {
  Json item = {{"id", "fc_" + random_id()}, {"type", "function_call"},
               {"status", "in_progress"},   {"call_id", "call_" + random_id()},
               {"name", event.name},        {"arguments", ""}};
  if (const auto found = tools_.names.find(event.name); found != tools_.names.end()) {
    item["name"] = found->second.name;
    item["namespace"] = found->second.space;
  }
  open_item(Open::Call, std::move(item));
}

void ResponsesAnswer::on(const ToolCallArguments& event) {
  add_delta("response.function_call_arguments.delta", event.json);
}

void ResponsesAnswer::on(const ToolCallEnd& event) {
  close_item(event.complete ? "completed" : "incomplete");
}

void ResponsesAnswer::fail_with(const HttpError& error) {
  if (!stream_) return exchange_->respond(openai_error(error));
  error_ = {{"code", "server_error"}, {"message", error.what()}};
  emit("response.failed", {{"response", response("failed")}});
  exchange_->finish();
}

void ResponsesAnswer::on(const GenerationEnded& event) {
  AnswerTotals totals;
  totals.add(event, true);
  usage_ = usage_json(totals);
  if (const auto error = answer_error(event)) return fail_with(*error);
  const bool cut = event.reason == FinishReason::Length;
  const char* status = cut ? "incomplete" : "completed";
  close_item(status);
  if (cut) incomplete_ = {{"reason", "max_output_tokens"}};
  Json body = response(status);
  body["timings"] = timings_json(totals);
  body["moeflux"] = truth_json(facts_.engine, totals);
  if (!stream_) return exchange_->respond({.body = dump_json(body)});
  emit(cut ? "response.incomplete" : "response.completed", {{"response", std::move(body)}});
  exchange_->finish();
}

}  // namespace moeflux
