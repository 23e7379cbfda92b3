#include "server/dialects/anthropic/answer.h"

#include <fmt/format.h>

#include "server/dialects/anthropic/envelope.h"
#include "server/service/answer_parts.h"

namespace moeflux {
namespace {

std::string event_text(const Json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", data["type"].get_ref<const std::string&>(),
                     dump_json(data));
}

constexpr const char* kPing = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

class MessageStream final : public AnthropicAnswer {
 public:
  MessageStream(ExchangePtr exchange, AnthropicAnswerOptions options)
      : exchange_(std::move(exchange)), envelope_(std::move(options)) {}

  void begin() override {
    exchange_->begin_stream({.headers = {{"request-id", envelope_.request_id()}}, .ping = kPing});
  }
  void take(const GenerationEvent& event) override {
    std::visit([this](const auto& each) { on(each); }, event);
  }

 private:
  enum class Block { None, Thinking, Text, Tool };

  void send(const Json& event) { exchange_->write(event_text(event)); }
  void send_delta(Json delta) {
    send({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }
  // Blocks follow each other: the next one begins where this one ends.
  void open(Block kind, Json block) {
    close();
    open_ = kind;
    send({{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
  }
  void close() {
    if (open_ == Block::None) return;
    if (open_ == Block::Thinking)
      send_delta({{"type", "signature_delta"}, {"signature", kThoughtSignature}});
    send({{"type", "content_block_stop"}, {"index", index_}});
    open_ = Block::None;
    ++index_;
  }

  // Only here the size of the prompt is known; a request that waits longer is kept alive by pings.
  void on(const GenerationStarted& event) {
    send({{"type", "message_start"}, {"message", envelope_.message(event)}});
    exchange_->write(kPing);
  }
  void on(const PromptProgress&) {}
  void on(const TokenEvent&) {}
  void on(const ContentDelta& event) {
    if (open_ != Block::Text) open(Block::Text, text_block());
    send_delta({{"type", "text_delta"}, {"text", event.text}});
  }
  void on(const ReasoningDelta& event) {
    if (open_ != Block::Thinking) open(Block::Thinking, thinking_block());
    if (envelope_.shows_thoughts())
      send_delta({{"type", "thinking_delta"}, {"thinking", event.text}});
  }
  void on(const ToolCallBegin& event) { open(Block::Tool, tool_use_block(event.name)); }
  void on(const ToolCallArguments& event) {
    send_delta({{"type", "input_json_delta"}, {"partial_json", event.json}});
  }
  void on(const ToolCallEnd&) { close(); }
  void on(const GenerationEnded& event) {
    if (const auto error = answer_error(event)) {
      send(anthropic_error_json(*error, envelope_.request_id()));
      exchange_->finish();
      return;
    }
    close();
    Json delta = Json::object();
    AnthropicEnvelope::add_stop(delta, event);
    Json last = {{"type", "message_delta"}, {"delta", std::move(delta)}};
    envelope_.add_totals(last, event);
    send(last);
    send({{"type", "message_stop"}});
    exchange_->finish();
  }

  ExchangePtr exchange_;
  AnthropicEnvelope envelope_;
  Block open_ = Block::None;
  int index_ = 0;  // of the block that is open or comes next
};

// What a model wrote as arguments, in the form that the history of a chat reads back.
Json parse_input(const std::string& arguments) {
  try {
    Json input = parse_json(arguments, "arguments");
    if (input.is_object()) return input;
  } catch (const Error&) {
  }
  return {{"arguments", arguments}};
}

class MessageResponse final : public AnthropicAnswer {
 public:
  MessageResponse(ExchangePtr exchange, AnthropicAnswerOptions options)
      : exchange_(std::move(exchange)), envelope_(std::move(options)) {}

  void begin() override {}
  void take(const GenerationEvent& event) override {
    std::visit([this](const auto& each) { on(each); }, event);
  }

 private:
  Json& last_block(const char* type, Json (*make)()) {
    if (content_.empty() || content_.back()["type"] != type) content_.push_back(make());
    return content_.back();
  }

  void on(const GenerationStarted& event) { start_ = event; }
  void on(const PromptProgress&) {}
  void on(const TokenEvent&) {}
  void on(const ContentDelta& event) {
    last_block("text", text_block)["text"].get_ref<std::string&>() += event.text;
  }
  void on(const ReasoningDelta& event) {
    Json& block = last_block("thinking", thinking_block);
    block["signature"] = kThoughtSignature;
    if (envelope_.shows_thoughts()) block["thinking"].get_ref<std::string&>() += event.text;
  }
  void on(const ToolCallBegin& event) {
    content_.push_back(tool_use_block(event.name));
    arguments_.clear();
  }
  void on(const ToolCallArguments& event) { arguments_ += event.json; }
  // Of a call that was cut off there is no input; what the model wrote of it is not an object.
  void on(const ToolCallEnd& event) {
    if (event.complete)
      content_.back()["input"] = parse_input(arguments_);
    else
      content_.erase(content_.size() - 1);
  }
  void on(const GenerationEnded& event) {
    if (const auto error = answer_error(event)) return exchange_->respond(anthropic_error(*error));
    Json message = envelope_.message(start_);
    message["content"] = std::move(content_);
    AnthropicEnvelope::add_stop(message, event);
    envelope_.add_totals(message, event);
    exchange_->respond(
        {.body = dump_json(message), .headers = {{"request-id", envelope_.request_id()}}});
  }

  ExchangePtr exchange_;
  AnthropicEnvelope envelope_;
  GenerationStarted start_{0, 0};
  Json content_ = Json::array();
  std::string arguments_;  // of the call that is being written
};

}  // namespace

std::unique_ptr<AnthropicAnswer> make_anthropic_stream(ExchangePtr exchange,
                                                       AnthropicAnswerOptions options) {
  return std::make_unique<MessageStream>(std::move(exchange), std::move(options));
}

std::unique_ptr<AnthropicAnswer> make_anthropic_response(ExchangePtr exchange,
                                                         AnthropicAnswerOptions options) {
  return std::make_unique<MessageResponse>(std::move(exchange), std::move(options));
}

}  // namespace moeflux
