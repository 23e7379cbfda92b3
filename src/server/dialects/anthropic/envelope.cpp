#include "server/dialects/anthropic/envelope.h"

#include "server/service/answer_parts.h"
#include "server/service/run_report.h"

namespace moeflux {
namespace {

// Tokens that were found in a kept beginning do not count as input here; nothing is charged for
// keeping them.
Json input_usage(std::int64_t n_prompt, std::int64_t n_cached) {
  return {{"input_tokens", n_prompt - n_cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", n_cached}};
}

std::string_view stop_reason(const GenerationEnded& ended) {
  switch (ended.reason) {
    case FinishReason::Length:
      return "max_tokens";
    case FinishReason::ToolCalls:
      return "tool_use";
    case FinishReason::Stop:
    case FinishReason::Cancelled:
    case FinishReason::Error:
      break;
  }
  return ended.stop ? "stop_sequence" : "end_turn";
}

}  // namespace

AnthropicEnvelope::AnthropicEnvelope(AnthropicAnswerOptions options)
    : options_(std::move(options)), id_("msg_" + random_id()), request_id_(new_request_id()) {}

Json AnthropicEnvelope::message(const GenerationStarted& start) const {
  Json usage = input_usage(start.n_prompt, start.n_cached);
  usage["output_tokens"] = 0;
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", options_.model},
          {"content", Json::array()},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr},
          {"usage", std::move(usage)}};
}

void AnthropicEnvelope::add_stop(Json& holder, const GenerationEnded& ended) {
  const std::string_view reason = stop_reason(ended);
  holder["stop_reason"] = reason;
  holder["stop_sequence"] = reason == "stop_sequence" ? Json(*ended.stop) : Json(nullptr);
}

void AnthropicEnvelope::add_totals(Json& holder, const GenerationEnded& ended) const {
  AnswerTotals totals;
  totals.add(ended, true);
  Json usage = input_usage(totals.n_prompt, totals.n_cached);
  usage["output_tokens"] = totals.n_generated;
  usage["output_tokens_details"] = {{"thinking_tokens", totals.n_reasoning}};
  holder["usage"] = std::move(usage);
  holder["timings"] = timings_json(totals);
  holder["moeflux"] = truth_json(options_.facts, totals);
}

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

}  // namespace moeflux
