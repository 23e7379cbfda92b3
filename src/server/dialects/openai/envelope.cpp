#include "server/dialects/openai/envelope.h"

#include <ctime>

#include <fmt/format.h>

#include "server/service/answer_parts.h"

namespace moeflux {

std::string sse_event(const Json& data) {
  return fmt::format("data: {}\n\n", dump_json(data));
}

std::string_view openai_finish_reason(FinishReason reason) {
  switch (reason) {
    case FinishReason::Length:
      return "length";
    case FinishReason::ToolCalls:
      return "tool_calls";
    case FinishReason::Stop:
    case FinishReason::Cancelled:
    case FinishReason::Error:
      break;
  }
  return "stop";
}

OpenAiEnvelope::OpenAiEnvelope(Names names, std::string model, std::string version,
                               ModelFacts facts, const OpenAiRequest& request)
    : names_(std::move(names)),
      id_(names_.id_prefix + random_id()),
      model_(std::move(model)),
      version_(std::move(version)),
      created_(std::time(nullptr)),
      facts_(std::move(facts)),
      n_choices_(request.generation.n *
                 std::max(static_cast<int>(request.generation.prompts.size()), 1)),
      n_per_prompt_(request.generation.n),
      include_usage_(request.include_usage) {}

Json OpenAiEnvelope::head(bool is_chunk) const {
  Json body = Json::object();
  body["id"] = id_;
  body["object"] = is_chunk ? names_.chunk_object : names_.object;
  body["created"] = created_;
  body["model"] = model_;
  body["system_fingerprint"] = "moeflux-" + version_;
  return body;
}

std::string OpenAiEnvelope::chunk(Json choice) const {
  Json body = head(true);
  body["choices"] = Json::array({std::move(choice)});
  if (include_usage_) body["usage"] = nullptr;
  return sse_event(body);
}

std::string OpenAiEnvelope::progress_chunk(Json choice, const PromptProgress& progress) const {
  Json body = head(true);
  body["choices"] = Json::array({std::move(choice)});
  if (include_usage_) body["usage"] = nullptr;
  body["prompt_progress"] = {{"total", progress.n_prompt},
                             {"cache", progress.n_cached},
                             {"processed", progress.n_done},
                             {"time_ms", static_cast<std::int64_t>(progress.seconds * 1e3)}};
  return sse_event(body);
}

Json OpenAiEnvelope::usage() const {
  return {{"prompt_tokens", totals_.n_prompt},
          {"completion_tokens", totals_.n_generated},
          {"total_tokens", totals_.n_prompt + totals_.n_generated},
          {"prompt_tokens_details", {{"cached_tokens", totals_.n_cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", totals_.n_reasoning}}}};
}

void OpenAiEnvelope::add_truth(Json& body) const {
  body["timings"] = timings_json(totals_);
  body["moeflux"] = truth_json(facts_, totals_);
}

HttpResponse OpenAiEnvelope::response(Json choices) const {
  Json body = head(false);
  body["choices"] = std::move(choices);
  body["usage"] = usage();
  add_truth(body);
  return {.body = dump_json(body)};
}

bool OpenAiEnvelope::add_ended(int choice, const GenerationEnded& ended) {
  totals_.add(ended, choice % n_per_prompt_ == 0);
  return ++n_ended_ == n_choices_;
}

std::string OpenAiEnvelope::finish_chunk(Json choice, bool last) const {
  Json body = head(true);
  body["choices"] = Json::array({std::move(choice)});
  if (include_usage_) body["usage"] = nullptr;
  if (!last) return sse_event(body);
  if (!include_usage_) {
    add_truth(body);
    return sse_event(body) + "data: [DONE]\n\n";
  }
  Json end = head(true);
  end["choices"] = Json::array();
  end["usage"] = usage();
  add_truth(end);
  return sse_event(body) + sse_event(end) + "data: [DONE]\n\n";
}

}  // namespace moeflux
