#include "server/dialects/ollama/answer.h"

#include <fmt/chrono.h>

#include "server/service/answer_parts.h"
#include "server/service/run_report.h"

namespace moeflux {
namespace {

std::int64_t nanoseconds(double seconds) {
  return static_cast<std::int64_t>(seconds * 1e9);
}

Json candidate_json(const TokenCandidate& candidate) {
  Json bytes = Json::array();
  for (const char c : candidate.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", candidate.bytes},
          {"logprob", candidate.log_probability},
          {"bytes", std::move(bytes)}};
}

// What a model wrote as arguments need not be an object; clients rely on one.
Json arguments_json(const std::string& text) {
  try {
    Json arguments = parse_json(text, "arguments");
    if (arguments.is_object()) return arguments;
  } catch (const Error&) {
  }
  return text.empty() ? Json::object() : Json{{"arguments", text}};
}

}  // namespace

Json ollama_error_json(const HttpError& error) {
  return {{"error", error.what()}};
}

HttpResponse ollama_error(const HttpError& error) {
  return {.status = error.status(), .body = dump_json(ollama_error_json(error))};
}

std::string ollama_time(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:09}Z",
                     fmt::gmtime(static_cast<std::time_t>(seconds.count())), rest.count());
}

OllamaAnswer::OllamaAnswer(OllamaKind kind, ExchangePtr exchange, std::string model, bool stream,
                           ModelFacts facts)
    : kind_(kind),
      exchange_(std::move(exchange)),
      model_(std::move(model)),
      stream_(stream),
      facts_(std::move(facts)) {}

void OllamaAnswer::begin() {
  // Lines have no comments, but a blank may precede any object.
  if (stream_) exchange_->begin_stream({.content_type = "application/x-ndjson", .ping = " "});
}

void OllamaAnswer::take(const GenerationEvent& event) {
  std::visit([this](const auto& each) { on(each); }, event);
}

void OllamaAnswer::load(const char* reason) {
  Json object = object_of({}, true);
  object["done_reason"] = reason;
  exchange_->respond({.body = dump_json(object)});
}

Json OllamaAnswer::object_of(Part part, bool done) const {
  Json object = {{"model", model_}, {"created_at", ollama_time(std::chrono::system_clock::now())}};
  const auto add_rest = [&](Json& to) {
    if (!part.thinking.empty()) to["thinking"] = std::move(part.thinking);
    if (!part.calls.empty()) to["tool_calls"] = std::move(part.calls);
  };
  if (kind_ == OllamaKind::Chat) {
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

void OllamaAnswer::flush() {
  if (!stream_) return;
  exchange_->write(dump_json(object_of(std::move(part_), false)) + "\n");
  part_ = {};
}

void OllamaAnswer::on(const TokenEvent& event) {
  Json token = candidate_json(event.token);
  if (!event.top.empty()) {
    token["top_logprobs"] = Json::array();
    for (const TokenCandidate& each : event.top)
      token["top_logprobs"].push_back(candidate_json(each));
  }
  part_.logprobs.push_back(std::move(token));
}

void OllamaAnswer::on(const ContentDelta& event) {
  part_.content += event.text;
  flush();
}

void OllamaAnswer::on(const ReasoningDelta& event) {
  part_.thinking += event.text;
  flush();
}

void OllamaAnswer::on(const ToolCallBegin& event) {
  call_ = {.name = event.name, .arguments = {}};
}

void OllamaAnswer::on(const ToolCallArguments& event) {
  call_.arguments += event.json;
}

void OllamaAnswer::on(const ToolCallEnd& event) {
  if (!event.complete) return;  // cut off: there are no arguments to call it with
  part_.calls.push_back({{"id", "call_" + random_id()},
                         {"function",
                          {{"index", event.index},
                           {"name", call_.name},
                           {"arguments", arguments_json(call_.arguments)}}}});
  flush();
}

void OllamaAnswer::on(const GenerationEnded& event) {
  if (const auto error = answer_error(event)) {
    if (!stream_) return exchange_->respond(ollama_error(*error));
    exchange_->write(dump_json(ollama_error_json(*error)) + "\n");
    return exchange_->finish();
  }
  const std::chrono::duration<double> total = std::chrono::steady_clock::now() - start_;
  const JobStats& stats = event.stats;
  Json object = object_of(std::move(part_), true);
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
  object["moeflux"] = truth_json(facts_, totals);
  if (!stream_) return exchange_->respond({.body = dump_json(object)});
  exchange_->write(dump_json(object) + "\n");
  exchange_->finish();
}

}  // namespace moeflux
