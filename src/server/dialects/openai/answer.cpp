#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "server/dialects/errors.h"
#include "server/dialects/openai/openai.h"

namespace moeflux {
namespace {

struct Names {
  std::string id_prefix, object, chunk_object;
};
const Names kChatNames{"chatcmpl-", "chat.completion", "chat.completion.chunk"};
const Names kTextNames{"cmpl-", "text_completion", "text_completion"};

std::string sse_event(const Json& data) {
  return fmt::format("data: {}\n\n", dump_json(data));
}

std::string_view finish_name(FinishReason reason, bool legacy_calls = false) {
  if (reason == FinishReason::Length) return "length";
  if (reason == FinishReason::ToolCalls && legacy_calls) return "function_call";
  return reason == FinishReason::ToolCalls ? "tool_calls" : "stop";
}

Json token_json(const TokenEvent& event) {
  Json token = candidate_json(event.token);
  token["top_logprobs"] = Json::array();
  for (const TokenCandidate& each : event.top)
    token["top_logprobs"].push_back(candidate_json(each));
  return token;
}

// Tokens whose text has not been sent yet, as "logprobs".
Json take_logprobs(Json& tokens) {
  if (tokens.empty()) return nullptr;
  Json logprobs = {{"content", std::move(tokens)}, {"refusal", nullptr}};
  tokens = Json::array();
  return logprobs;
}

Json reasoning_json(const std::string& text) {
  // Clients read one or the other.
  return {{"reasoning_content", text}, {"reasoning", text}};
}

// What all answers share: the same id and time in all chunks, the usage, and how they end.
class OpenAiAnswer : public DialectAnswer {
 public:
  OpenAiAnswer(const Names& names, ExchangePtr exchange, AnswerModel model,
               const std::string& version, const OpenAiRequest& request)
      : DialectAnswer(std::move(exchange), std::move(model)),
        n_choices_(static_cast<std::size_t>(request.generation.n) *
                   std::max<std::size_t>(request.generation.prompts.size(), 1)),
        return_progress_(request.return_progress),
        has_logprobs_(request.generation.top_logprobs.has_value()),
        legacy_calls_(request.legacy_calls),
        names_(names),
        id_(names.id_prefix + random_id()),
        version_(version),
        created_(std::time(nullptr)),
        n_per_prompt_(request.generation.n),
        include_usage_(request.include_usage) {
    if (request.timings_per_token) running_.resize(n_choices_);
  }

 protected:
  using DialectAnswer::on;
  void on(int choice, const GenerationStarted& event) override {
    if (!running_.empty())
      running_[static_cast<std::size_t>(choice)].start(event.n_prompt, event.n_cached);
  }
  void count_token(int choice) {
    if (!running_.empty()) running_[static_cast<std::size_t>(choice)].add_token();
  }

  // One chunk of a stream with one choice.
  void send(Json choice) {
    const auto index = choice.at("index").get<std::size_t>();
    Json body = chunk(std::move(choice));
    if (!running_.empty()) {
      const AnswerTotals totals = running_[index].totals();
      if (totals.n_generated > 0) body["timings"] = timings_json(totals);
    }
    exchange_->write(sse_event(body));
  }
  void send_progress(Json choice, const PromptProgress& progress) {
    Json body = chunk(std::move(choice));
    body["prompt_progress"] = {{"total", progress.n_prompt},
                               {"cache", progress.n_cached},
                               {"processed", progress.n_done},
                               {"time_ms", static_cast<std::int64_t>(progress.seconds * 1e3)}};
    exchange_->write(sse_event(body));
  }

  // True when this was the last choice to end.
  bool add_ended(int choice, const GenerationEnded& ended) {
    totals_.add(ended, choice % n_per_prompt_ == 0);
    return ++n_ended_ == n_choices_;
  }
  // The finish chunk of a choice, and the end of the stream after the last one.
  void send_end(Json choice, bool last) {
    Json body = chunk(std::move(choice));
    if (last && include_usage_) {
      exchange_->write(sse_event(body));
      body = head(names_.chunk_object);
      body["choices"] = Json::array();
      body["usage"] = usage();
    }
    if (last) add_run_report(body, model_.facts, totals_);
    exchange_->write(sse_event(body) + (last ? "data: [DONE]\n\n" : ""));
    if (last) exchange_->finish();
  }
  void send_error(const HttpError& error) {
    exchange_->write(sse_event(openai_error_json(error)));
    exchange_->finish();
  }
  // The response with all choices.
  void respond(Json choices) {
    Json body = head(names_.object);
    body["choices"] = std::move(choices);
    body["usage"] = usage();
    add_run_report(body, model_.facts, totals_);
    exchange_->respond({.body = dump_json(body)});
  }

  const std::size_t n_choices_;
  const bool return_progress_, has_logprobs_, legacy_calls_;

 private:
  Json head(const std::string& object) const {
    return {{"id", id_},
            {"object", object},
            {"created", created_},
            {"model", model_.name},
            {"system_fingerprint", "moeflux-" + version_}};
  }
  Json chunk(Json choice) const {
    Json body = head(names_.chunk_object);
    body["choices"] = Json::array({std::move(choice)});
    if (include_usage_) body["usage"] = nullptr;
    return body;
  }
  Json usage() const {
    return {{"prompt_tokens", totals_.n_prompt},
            {"completion_tokens", totals_.n_generated},
            {"total_tokens", totals_.n_prompt + totals_.n_generated},
            {"prompt_tokens_details", {{"cached_tokens", totals_.n_cached}}},
            {"completion_tokens_details", {{"reasoning_tokens", totals_.n_reasoning}}}};
  }

  const Names& names_;
  const std::string id_;
  const std::string version_;
  const std::int64_t created_;
  const int n_per_prompt_;
  const bool include_usage_;
  std::size_t n_ended_ = 0;
  AnswerTotals totals_;
  std::vector<RunningTotals> running_;  // by choice; empty unless they are wanted in every chunk
};

// ---- /v1/chat/completions

class ChatStream final : public OpenAiAnswer {
 public:
  using OpenAiAnswer::OpenAiAnswer;

  void begin() override {
    exchange_->begin_stream({});
    for (int i = 0; i < static_cast<int>(n_choices_); ++i)
      send_delta(i, {{"role", "assistant"}, {"content", ""}});
  }

 private:
  Json choice_json(int choice, Json delta) {
    return {{"index", choice},
            {"delta", std::move(delta)},
            {"logprobs", take_logprobs(logprobs_[static_cast<std::size_t>(choice)])},
            {"finish_reason", nullptr}};
  }
  void send_delta(int choice, Json delta) { send(choice_json(choice, std::move(delta))); }
  void send_call(int choice, Json call) {
    if (legacy_calls_) return send_delta(choice, {{"function_call", call.at("function")}});
    send_delta(choice, {{"tool_calls", Json::array({std::move(call)})}});
  }

  using OpenAiAnswer::on;
  void on(int choice, const PromptProgress& event) override {
    if (return_progress_) send_progress(choice_json(choice, Json::object()), event);
  }
  void on(int choice, const TokenEvent& event) override {
    count_token(choice);
    if (has_logprobs_) logprobs_[static_cast<std::size_t>(choice)].push_back(token_json(event));
  }
  void on(int choice, const ContentDelta& event) override {
    send_delta(choice, {{"content", event.text}});
  }
  void on(int choice, const ReasoningDelta& event) override {
    send_delta(choice, reasoning_json(event.text));
  }
  void on(int choice, const ToolCallBegin& event) override {
    send_call(choice, {{"index", event.index},
                       {"id", "call_" + random_id()},
                       {"type", "function"},
                       {"function", {{"name", event.name}, {"arguments", ""}}}});
  }
  void on(int choice, const ToolCallArguments& event) override {
    send_call(choice, {{"index", event.index}, {"function", {{"arguments", event.json}}}});
  }
  void on(int choice, const GenerationEnded& event) override {
    if (const auto error = answer_error(event)) return send_error(*error);
    const bool last = add_ended(choice, event);
    Json finish = choice_json(choice, Json::object());
    finish["finish_reason"] = finish_name(event.reason, legacy_calls_);
    send_end(std::move(finish), last);
  }

  std::vector<Json> logprobs_ = std::vector<Json>(n_choices_, Json::array());  // by choice
};

class ChatResponse final : public OpenAiAnswer {
 public:
  using OpenAiAnswer::OpenAiAnswer;

 private:
  struct Choice {
    Reply reply;
    Json logprobs = Json::array();
    FinishReason reason = FinishReason::Stop;
  };
  Choice& at(int choice) { return choices_[static_cast<std::size_t>(choice)]; }

  using OpenAiAnswer::on;
  void on(int choice, const ContentDelta& piece) override { at(choice).reply.add({piece}); }
  void on(int choice, const ReasoningDelta& piece) override { at(choice).reply.add({piece}); }
  void on(int choice, const ToolCallBegin& piece) override { at(choice).reply.add({piece}); }
  void on(int choice, const ToolCallArguments& piece) override { at(choice).reply.add({piece}); }
  void on(int choice, const ToolCallEnd& piece) override { at(choice).reply.add({piece}); }
  void on(int choice, const TokenEvent& event) override {
    if (has_logprobs_) at(choice).logprobs.push_back(token_json(event));
  }
  void on(int choice, const GenerationEnded& event) override {
    at(choice).reason = event.reason;
    if (const auto error = answer_error(event)) return exchange_->respond(openai_error(*error));
    if (!add_ended(choice, event)) return;
    Json choices = Json::array();
    for (Choice& each : choices_) {
      choices.push_back({{"index", choices.size()},
                         {"message", message_json(each.reply)},
                         {"logprobs", take_logprobs(each.logprobs)},
                         {"finish_reason", finish_name(each.reason, legacy_calls_)}});
    }
    respond(std::move(choices));
  }

  Json message_json(const Reply& reply) const {
    Json message = {{"role", "assistant"}, {"content", reply.content}};
    if (!reply.reasoning.empty()) message.update(reasoning_json(reply.reasoning));
    if (reply.calls.empty()) return message;
    if (reply.content.empty()) message["content"] = nullptr;
    if (legacy_calls_) {
      const ToolCall& call = reply.calls.front();
      message["function_call"] = {{"name", call.name}, {"arguments", call.arguments}};
      return message;
    }
    message["tool_calls"] = Json::array();
    for (const ToolCall& call : reply.calls) {
      message["tool_calls"].push_back(
          {{"id", "call_" + random_id()},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return message;
  }

  std::vector<Choice> choices_ = std::vector<Choice>(n_choices_);
};

// ---- /v1/completions

// The logprobs of a text: lists side by side, an entry per token.
class TextLogprobs {
 public:
  void add(const TokenEvent& event) {
    tokens_.push_back(event.token.bytes);
    values_.push_back(event.token.log_probability);
    offsets_.push_back(offset_);
    offset_ += event.token.bytes.size();
    Json top = Json::object();
    for (const TokenCandidate& each : event.top) top[each.bytes] = each.log_probability;
    top_.push_back(event.top.empty() ? Json(nullptr) : std::move(top));
  }
  // What was added since the last call; null where that is nothing.
  Json take() {
    if (tokens_.empty()) return nullptr;
    Json all = {{"tokens", std::move(tokens_)},
                {"token_logprobs", std::move(values_)},
                {"top_logprobs", std::move(top_)},
                {"text_offset", std::move(offsets_)}};
    tokens_ = values_ = top_ = offsets_ = Json::array();
    return all;
  }
  void skip(std::size_t n_bytes) { offset_ += n_bytes; }

 private:
  Json tokens_ = Json::array(), values_ = Json::array(), top_ = Json::array(),
       offsets_ = Json::array();
  std::size_t offset_ = 0;
};

class TextAnswer final : public OpenAiAnswer {
 public:
  TextAnswer(ExchangePtr exchange, AnswerModel model, const std::string& version,
             const OpenAiRequest& request)
      : OpenAiAnswer(kTextNames, std::move(exchange), std::move(model), version, request),
        stream_(request.stream),
        choices_(n_choices_) {
    if (request.echo.empty()) return;
    for (std::size_t i = 0; i < n_choices_; ++i) {
      choices_[i].text = request.echo[i / static_cast<std::size_t>(request.generation.n)];
      choices_[i].logprobs.skip(choices_[i].text.size());
    }
  }

  void begin() override {
    if (!stream_) return;
    exchange_->begin_stream({});
    for (int i = 0; i < static_cast<int>(n_choices_); ++i) {
      if (!at(i).text.empty()) send(take_json(i));
    }
  }

 private:
  struct Choice {
    std::string text;  // not sent yet
    TextLogprobs logprobs;
    FinishReason reason = FinishReason::Stop;
  };
  Choice& at(int choice) { return choices_[static_cast<std::size_t>(choice)]; }

  Json take_json(int choice) {
    return {{"index", choice},
            {"text", std::exchange(at(choice).text, "")},
            {"logprobs", at(choice).logprobs.take()},
            {"finish_reason", nullptr}};
  }
  Json take_end(int choice) {
    Json json = take_json(choice);
    json["finish_reason"] = finish_name(at(choice).reason);
    return json;
  }

  using OpenAiAnswer::on;
  void on(int choice, const PromptProgress& event) override {
    if (stream_ && return_progress_) send_progress(take_json(choice), event);
  }
  void on(int choice, const TokenEvent& event) override {
    count_token(choice);
    if (has_logprobs_) at(choice).logprobs.add(event);
  }
  void on(int choice, const ContentDelta& event) override {
    at(choice).text += event.text;
    if (stream_) send(take_json(choice));
  }
  void on(int choice, const GenerationEnded& event) override {
    at(choice).reason = event.reason;
    if (const auto error = answer_error(event))
      return stream_ ? send_error(*error) : exchange_->respond(openai_error(*error));
    const bool last = add_ended(choice, event);
    if (stream_) return send_end(take_end(choice), last);
    if (!last) return;
    Json choices = Json::array();
    for (int i = 0; i < static_cast<int>(n_choices_); ++i) choices.push_back(take_end(i));
    respond(std::move(choices));
  }

  const bool stream_;
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<DialectAnswer> make_chat_answer(ExchangePtr exchange, AnswerModel model,
                                                const std::string& version,
                                                const OpenAiRequest& request) {
  if (request.stream)
    return std::make_unique<ChatStream>(kChatNames, std::move(exchange), std::move(model), version,
                                        request);
  return std::make_unique<ChatResponse>(kChatNames, std::move(exchange), std::move(model), version,
                                        request);
}

std::unique_ptr<DialectAnswer> make_text_answer(ExchangePtr exchange, AnswerModel model,
                                                const std::string& version,
                                                const OpenAiRequest& request) {
  return std::make_unique<TextAnswer>(std::move(exchange), std::move(model), version, request);
}

}  // namespace moeflux
