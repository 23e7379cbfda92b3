#include <fmt/chrono.h>

#include "server/dialects/errors.h"
#include "server/dialects/ollama/ollama.h"

namespace moeflux {
namespace {

std::int64_t nanoseconds(double seconds) {
  return static_cast<std::int64_t>(seconds * 1e9);
}

struct Part {
  std::string content = {}, thinking = {};
  Json calls = Json::array();
  Json logprobs = Json::array();
};

// One line of a stream, or the whole answer.
Json object_of(OllamaKind kind, const std::string& model, Part part, bool done) {
  Json object = {{"model", model}, {"created_at", ollama_time(std::chrono::system_clock::now())}};
  const auto add_rest = [&](Json& to) {
    if (!part.thinking.empty()) to["thinking"] = std::move(part.thinking);
    if (!part.calls.empty()) to["tool_calls"] = std::move(part.calls);
  };
  if (kind == OllamaKind::Chat) {
    Json message = {{"role", "assistant"}, {"content", std::move(part.content)}};
    add_rest(message);
    object["message"] = std::move(message);
  } else {
    object["response"] = std::move(part.content);
    add_rest(object);
  }
  object["done"] = done;
  if (!part.logprobs.empty()) object["logprobs"] = std::move(part.logprobs);
  return object;
}

class OllamaAnswer final : public DialectAnswer {
 public:
  OllamaAnswer(OllamaKind kind, ExchangePtr exchange, AnswerModel model, bool stream)
      : DialectAnswer(std::move(exchange), std::move(model)), kind_(kind), stream_(stream) {}

  void begin() override {
    // Lines have no comments, but a blank may precede any object.
    if (stream_) exchange_->begin_stream({.content_type = "application/x-ndjson", .ping = " "});
  }

 private:
  void flush() {  // sends what there is of a stream
    if (!stream_) return;
    exchange_->write(dump_json(object_of(kind_, model_.name, std::move(part_), false)) + "\n");
    part_ = {};
  }
  using DialectAnswer::on;
  void on(int, const TokenEvent& event) override {
    Json token = candidate_json(event.token);
    if (!event.top.empty()) {
      token["top_logprobs"] = Json::array();
      for (const TokenCandidate& each : event.top)
        token["top_logprobs"].push_back(candidate_json(each));
    }
    part_.logprobs.push_back(std::move(token));
  }
  void on(int, const ContentDelta& event) override {
    part_.content += event.text;
    flush();
  }
  void on(int, const ReasoningDelta& event) override {
    part_.thinking += event.text;
    flush();
  }
  void on(int, const ToolCallBegin& event) override {
    call_ = {.name = event.name, .arguments = {}};
  }
  void on(int, const ToolCallArguments& event) override { call_.arguments += event.json; }
  void on(int, const ToolCallEnd& event) override {
    if (!event.complete) return;  // cut off: there are no arguments to call it with
    part_.calls.push_back({{"id", "call_" + random_id()},
                           {"function",
                            {{"index", event.index},
                             {"name", call_.name},
                             {"arguments", arguments_json(call_.arguments)}}}});
    flush();
  }
  void on(int, const GenerationEnded& event) override {
    if (const auto error = answer_error(event)) {
      if (!stream_) return exchange_->respond(ollama_error(*error));
      exchange_->write(dump_json(ollama_error_json(*error)) + "\n");
      return exchange_->finish();
    }
    const std::chrono::duration<double> total = std::chrono::steady_clock::now() - start_;
    const JobStats& stats = event.stats;
    Json object = object_of(kind_, model_.name, std::move(part_), true);
    object["done_reason"] = event.reason == FinishReason::Length ? "length" : "stop";
    object["total_duration"] = nanoseconds(total.count());
    // The model is in memory; what a client may have waited for is its turn.
    object["load_duration"] = nanoseconds(stats.queue_seconds);
    object["prompt_eval_count"] = stats.n_prompt;
    object["prompt_eval_duration"] = nanoseconds(stats.prefill_seconds);
    object["eval_count"] = stats.n_tokens;
    object["eval_duration"] = nanoseconds(stats.decode_seconds);
    AnswerTotals totals;
    totals.add(event, true);
    object["moeflux"] = run_report_json(model_.facts, totals);
    if (!stream_) return exchange_->respond({.body = dump_json(object)});
    exchange_->write(dump_json(object) + "\n");
    exchange_->finish();
  }

  const OllamaKind kind_;
  const bool stream_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Part part_;  // not sent yet
  ToolCall call_;
};

}  // namespace

std::string ollama_time(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:09}Z",
                     fmt::gmtime(static_cast<std::time_t>(seconds.count())), rest.count());
}

std::unique_ptr<DialectAnswer> make_ollama_answer(OllamaKind kind, ExchangePtr exchange,
                                                  AnswerModel model, bool stream) {
  return std::make_unique<OllamaAnswer>(kind, std::move(exchange), std::move(model), stream);
}

HttpResponse ollama_load_response(OllamaKind kind, const std::string& model, const char* reason) {
  Json object = object_of(kind, model, {}, /*done=*/true);
  object["done_reason"] = reason;
  return {.body = dump_json(object)};
}

}  // namespace moeflux
