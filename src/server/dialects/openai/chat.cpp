// Answers to /v1/chat/completions.
#include <fmt/format.h>

#include "server/dialects/openai/answer.h"
#include "server/dialects/openai/errors.h"
#include "server/service/answer_parts.h"

namespace moeflux {
namespace {

Json bytes_json(const std::string& bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

Json candidate_json(const TokenCandidate& candidate) {
  return {{"token", candidate.bytes},
          {"logprob", candidate.log_probability},
          {"bytes", bytes_json(candidate.bytes)}};
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

class ChatStream final : public OpenAiAnswer {
 public:
  ChatStream(ExchangePtr exchange, OpenAiEnvelope envelope, bool return_progress)
      : exchange_(std::move(exchange)),
        envelope_(std::move(envelope)),
        return_progress_(return_progress),
        logprobs_(static_cast<std::size_t>(envelope_.n_choices()), Json::array()) {}

  void begin() override {
    exchange_->begin_stream({});
    for (int i = 0; i < envelope_.n_choices(); ++i)
      exchange_->write(envelope_.chunk(choice_json(i, {{"role", "assistant"}, {"content", ""}})));
  }

  void take(int choice, const GenerationEvent& event) override {
    std::visit([&](const auto& each) { on(choice, each); }, event);
  }

 private:
  Json choice_json(int choice, Json delta) {
    return {{"index", choice},
            {"delta", std::move(delta)},
            {"logprobs", take_logprobs(logprobs_[static_cast<std::size_t>(choice)])},
            {"finish_reason", nullptr}};
  }
  void send(int choice, Json delta) {
    exchange_->write(envelope_.chunk(choice_json(choice, std::move(delta))));
  }
  void send_call(int choice, Json call) {
    send(choice, {{"tool_calls", Json::array({std::move(call)})}});
  }

  void on(int, const GenerationStarted&) {}
  void on(int choice, const PromptProgress& event) {
    if (!return_progress_) return;
    exchange_->write(envelope_.progress_chunk(choice_json(choice, Json::object()), event));
  }
  void on(int choice, const TokenEvent& event) {
    logprobs_[static_cast<std::size_t>(choice)].push_back(token_json(event));
  }
  void on(int choice, const ContentDelta& event) { send(choice, {{"content", event.text}}); }
  void on(int choice, const ReasoningDelta& event) { send(choice, reasoning_json(event.text)); }
  void on(int choice, const ToolCallBegin& event) {
    send_call(choice, {{"index", event.index},
                       {"id", "call_" + random_id()},
                       {"type", "function"},
                       {"function", {{"name", event.name}, {"arguments", ""}}}});
  }
  void on(int choice, const ToolCallArguments& event) {
    send_call(choice, {{"index", event.index}, {"function", {{"arguments", event.json}}}});
  }
  void on(int, const ToolCallEnd&) {}
  void on(int choice, const GenerationEnded& event) {
    if (const auto error = answer_error(event)) {
      exchange_->write(sse_event(openai_error_json(*error)));
      exchange_->finish();
      return;
    }
    const bool last = envelope_.add_ended(choice, event);
    Json finish = choice_json(choice, Json::object());
    finish["finish_reason"] = openai_finish_reason(event.reason);
    exchange_->write(envelope_.finish_chunk(std::move(finish), last));
    if (last) exchange_->finish();
  }

  ExchangePtr exchange_;
  OpenAiEnvelope envelope_;
  bool return_progress_;
  std::vector<Json> logprobs_;  // by choice
};

class ChatResponse final : public OpenAiAnswer {
 public:
  ChatResponse(ExchangePtr exchange, OpenAiEnvelope envelope)
      : exchange_(std::move(exchange)),
        envelope_(std::move(envelope)),
        answers_(static_cast<std::size_t>(envelope_.n_choices())) {}

  void begin() override {}
  void take(int choice, const GenerationEvent& event) override {
    Answer& answer = answers_[static_cast<std::size_t>(choice)];
    if (const auto* token = std::get_if<TokenEvent>(&event))
      answer.logprobs.push_back(token_json(*token));
    else if (const auto* ended = std::get_if<GenerationEnded>(&event))
      end(choice, *ended);
    else
      std::visit([&](const auto& each) { add(answer.reply, each); }, event);
  }

 private:
  struct Answer {
    Reply reply;
    Json logprobs = Json::array();
    FinishReason reason = FinishReason::Stop;
  };

  static void add(Reply&, const GenerationStarted&) {}
  static void add(Reply&, const PromptProgress&) {}
  static void add(Reply&, const TokenEvent&) {}
  static void add(Reply&, const GenerationEnded&) {}
  template <class Piece>
  static void add(Reply& reply, const Piece& piece) {
    reply.add({piece});
  }

  static Json message_json(const Reply& reply) {
    Json message = {{"role", "assistant"}, {"content", reply.content}};
    if (!reply.reasoning.empty()) message.update(reasoning_json(reply.reasoning));
    if (reply.calls.empty()) return message;
    if (reply.content.empty()) message["content"] = nullptr;
    message["tool_calls"] = Json::array();
    for (const ToolCall& call : reply.calls) {
      message["tool_calls"].push_back(
          {{"id", "call_" + random_id()},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return message;
  }

  void end(int choice, const GenerationEnded& event) {
    answers_[static_cast<std::size_t>(choice)].reason = event.reason;
    if (const auto error = answer_error(event)) return exchange_->respond(openai_error(*error));
    if (!envelope_.add_ended(choice, event)) return;
    Json choices = Json::array();
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      choices.push_back({{"index", i},
                         {"message", message_json(answers_[i].reply)},
                         {"logprobs", take_logprobs(answers_[i].logprobs)},
                         {"finish_reason", openai_finish_reason(answers_[i].reason)}});
    }
    exchange_->respond(envelope_.response(std::move(choices)));
  }

  ExchangePtr exchange_;
  OpenAiEnvelope envelope_;
  std::vector<Answer> answers_;
};

}  // namespace

std::unique_ptr<OpenAiAnswer> make_chat_stream(ExchangePtr exchange, OpenAiEnvelope envelope,
                                               bool return_progress) {
  return std::make_unique<ChatStream>(std::move(exchange), std::move(envelope), return_progress);
}

std::unique_ptr<OpenAiAnswer> make_chat_response(ExchangePtr exchange, OpenAiEnvelope envelope) {
  return std::make_unique<ChatResponse>(std::move(exchange), std::move(envelope));
}

}  // namespace moeflux
