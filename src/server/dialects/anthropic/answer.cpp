#include <fmt/format.h>

#include "server/dialects/anthropic/anthropic.h"
#include "server/dialects/errors.h"

namespace moeflux {
namespace {

constexpr const char* kPing = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
// Stands for the signature of a thought. Clients send it back, and it is not checked.
constexpr std::string_view kThoughtSignature = "bW9lZmx1eA==";

std::string event_text(const Json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", data["type"].get_ref<const std::string&>(),
                     dump_json(data));
}

// Tokens found in a kept prefix do not count as input here; nothing is charged for keeping them.
Json input_usage(std::int64_t n_prompt, std::int64_t n_cached) {
  return {{"input_tokens", n_prompt - n_cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", n_cached}};
}

std::string_view stop_reason(const GenerationEnded& ended) {
  if (ended.reason == FinishReason::Length) return "max_tokens";
  if (ended.reason == FinishReason::ToolCalls) return "tool_use";
  return ended.stop ? "stop_sequence" : "end_turn";
}

// Blocks of content as they begin.
Json text_block() {
  return {{"type", "text"}, {"text", ""}};
}

Json thinking_block() {
  return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
}

Json tool_use_block(const std::string& name) {
  return {{"type", "tool_use"},
          {"id", "toolu_" + random_id()},
          {"name", name},
          {"input", Json::object()}};
}

// What a stream and a single message share: the message around the blocks, the usage, and the end.
class AnthropicAnswer : public DialectAnswer {
 public:
  AnthropicAnswer(ExchangePtr exchange, AnswerModel model, bool shows_thoughts)
      : DialectAnswer(std::move(exchange), std::move(model)), shows_thoughts_(shows_thoughts) {}

 protected:
  // The message without content, before its end is known.
  Json message(const GenerationStarted& start) const {
    Json usage = input_usage(start.n_prompt, start.n_cached);
    usage["output_tokens"] = 0;
    return {{"id", "msg_" + random_id()}, {"type", "message"},        {"role", "assistant"},
            {"model", model_.name},       {"content", Json::array()}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr},   {"usage", std::move(usage)}};
  }
  static void add_stop(Json& holder, const GenerationEnded& ended) {
    const std::string_view reason = stop_reason(ended);
    holder["stop_reason"] = reason;
    holder["stop_sequence"] = reason == "stop_sequence" ? Json(*ended.stop) : Json(nullptr);
  }
  void add_totals(Json& holder, const GenerationEnded& ended) const {
    AnswerTotals totals;
    totals.add(ended, true);
    Json usage = input_usage(totals.n_prompt, totals.n_cached);
    usage["output_tokens"] = totals.n_generated;
    usage["output_tokens_details"] = {{"thinking_tokens", totals.n_reasoning}};
    holder["usage"] = std::move(usage);
    add_run_report(holder, model_.facts, totals);
  }

  const bool shows_thoughts_;
  const std::string request_id_ = "req_" + random_id();
};

class MessageStream final : public AnthropicAnswer {
 public:
  using AnthropicAnswer::AnthropicAnswer;

  void begin() override {
    exchange_->begin_stream({.headers = {{"request-id", request_id_}}, .ping = kPing});
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

  using DialectAnswer::on;
  // The size of the prompt is known only here; pings keep a request alive that waits for longer.
  void on(int, const GenerationStarted& event) override {
    send({{"type", "message_start"}, {"message", message(event)}});
    exchange_->write(kPing);
  }
  void on(int, const ContentDelta& event) override {
    if (open_ != Block::Text) open(Block::Text, text_block());
    send_delta({{"type", "text_delta"}, {"text", event.text}});
  }
  void on(int, const ReasoningDelta& event) override {
    if (open_ != Block::Thinking) open(Block::Thinking, thinking_block());
    if (shows_thoughts_) send_delta({{"type", "thinking_delta"}, {"thinking", event.text}});
  }
  void on(int, const ToolCallBegin& event) override {
    open(Block::Tool, tool_use_block(event.name));
  }
  void on(int, const ToolCallArguments& event) override {
    send_delta({{"type", "input_json_delta"}, {"partial_json", event.json}});
  }
  void on(int, const ToolCallEnd&) override { close(); }
  void on(int, const GenerationEnded& event) override {
    if (const auto error = answer_error(event)) {
      send(anthropic_error_json(*error, request_id_));
      exchange_->finish();
      return;
    }
    close();
    Json delta = Json::object();
    add_stop(delta, event);
    Json last = {{"type", "message_delta"}, {"delta", std::move(delta)}};
    add_totals(last, event);
    send(last);
    send({{"type", "message_stop"}});
    exchange_->finish();
  }

  Block open_ = Block::None;
  int index_ = 0;  // of the block that is open or comes next
};

class MessageResponse final : public AnthropicAnswer {
 public:
  using AnthropicAnswer::AnthropicAnswer;

 private:
  Json& last_block(const char* type, Json (*make)()) {
    if (content_.empty() || content_.back()["type"] != type) content_.push_back(make());
    return content_.back();
  }

  using DialectAnswer::on;
  void on(int, const GenerationStarted& event) override { start_ = event; }
  void on(int, const ContentDelta& event) override {
    last_block("text", text_block)["text"].get_ref<std::string&>() += event.text;
  }
  void on(int, const ReasoningDelta& event) override {
    Json& block = last_block("thinking", thinking_block);
    block["signature"] = kThoughtSignature;
    if (shows_thoughts_) block["thinking"].get_ref<std::string&>() += event.text;
  }
  void on(int, const ToolCallBegin& event) override {
    content_.push_back(tool_use_block(event.name));
    arguments_.clear();
  }
  void on(int, const ToolCallArguments& event) override { arguments_ += event.json; }
  // A call that was cut off is left out: its arguments are not an object.
  void on(int, const ToolCallEnd& event) override {
    if (event.complete)
      content_.back()["input"] = arguments_json(arguments_);
    else
      content_.erase(content_.size() - 1);
  }
  void on(int, const GenerationEnded& event) override {
    if (const auto error = answer_error(event)) return exchange_->respond(anthropic_error(*error));
    Json body = message(start_);
    body["content"] = std::move(content_);
    add_stop(body, event);
    add_totals(body, event);
    exchange_->respond({.body = dump_json(body), .headers = {{"request-id", request_id_}}});
  }

  GenerationStarted start_{0, 0};
  Json content_ = Json::array();
  std::string arguments_;  // of the call that is being written
};

}  // namespace

std::unique_ptr<DialectAnswer> make_anthropic_answer(ExchangePtr exchange, AnswerModel model,
                                                     const AnthropicRequest& request) {
  if (request.stream) {
    return std::make_unique<MessageStream>(std::move(exchange), std::move(model),
                                           request.shows_thoughts);
  }
  return std::make_unique<MessageResponse>(std::move(exchange), std::move(model),
                                           request.shows_thoughts);
}

}  // namespace moeflux
