#include "cli/reports/run_stats.h"

#include <fmt/format.h>

namespace moeflux::cli {
namespace {

double per(double value, double n) {
  return n > 0 ? value / n : 0;
}

double number(std::uint64_t value) {
  return static_cast<double>(value);
}

double share(std::uint64_t part, std::uint64_t rest) {
  return per(number(part), number(part + rest));
}

Json layer_json(const LayerActivity& layer, double n_tokens) {
  return {{"layer", layer.name},
          {"hits", per(number(layer.hits), n_tokens)},
          {"misses", per(number(layer.misses), n_tokens)},
          {"bytes", per(number(layer.bytes), n_tokens)},
          {"wait_ms", per(number(layer.wait_ns) * 1e-6, n_tokens)},
          {"compute_ms", per(number(layer.compute_ns) * 1e-6, n_tokens)}};
}

// Averages per token.
Json phase_json(const Activity& activity, bool with_layers) {
  const double n = number(activity.tokens);
  const LayerActivity total = activity.total();
  Json json = {{"tokens", activity.tokens},
               {"hits", total.hits},
               {"misses", total.misses},
               {"hit_rate", share(total.hits, total.misses)},
               {"bytes_read", activity.bytes_read},
               {"wait_seconds", number(total.wait_ns) * 1e-9},
               {"compute_seconds", number(total.compute_ns) * 1e-9},
               {"guessed", activity.prefetched},
               {"guesses_used", activity.prefetches_used}};
  if (with_layers) {
    for (const LayerActivity& layer : activity.layers) {
      json["layers_per_token"].push_back(layer_json(layer, n));
    }
  }
  return json;
}

Json lookahead_json(const LookaheadGovernor& governor) {
  const LookaheadGovernor::Report report = governor.report();
  return {{"width", report.width},
          {"on_trial", report.on_trial},
          {"gain", report.gain},
          {"precision", report.precision},
          {"wait_share", report.wait_share},
          {"switches", report.switches}};
}

Json drafts_json(const Engine& engine, const GenerateResult& result) {
  const DraftGovernor::Report report = engine.draft_governor().report();
  return {{"passes", result.drafts.passes},
          {"drafted", result.drafts.drafted},
          {"accepted", result.drafts.accepted},
          {"max_depth", engine.max_drafts()},
          {"depth", report.depth},
          {"on_trial", report.on_trial},
          {"gain", report.gain},
          {"switches", report.switches}};
}

std::string drafts_line(const Engine& engine, const GenerateResult& result) {
  const DraftStats& drafts = result.drafts;
  return fmt::format(
      "{:<10}{} of {} accepted, {:.2f} tokens per pass; {}\n", "drafts", drafts.accepted,
      drafts.drafted,
      per(static_cast<double>(drafts.passes + drafts.accepted), static_cast<double>(drafts.passes)),
      engine.draft_governor().describe());
}

std::string layer_line(const LayerActivity& layer, double n) {
  return fmt::format("{:<8}{:>8.2f}{:>8.2f}{:>12}{:>10.2f}{:>12.2f}\n", layer.name,
                     per(number(layer.hits), n), per(number(layer.misses), n),
                     format_bytes(static_cast<std::uint64_t>(per(number(layer.bytes), n))),
                     per(number(layer.wait_ns) * 1e-6, n), per(number(layer.compute_ns) * 1e-6, n));
}

std::string layer_table(const Activity& activity) {
  const double n = number(activity.tokens);
  std::string text = fmt::format("\n{:<8}{:>8}{:>8}{:>12}{:>10}{:>12}\n", "layer", "hits", "misses",
                                 "read", "wait ms", "compute ms");
  for (const LayerActivity& layer : activity.layers) {
    if (layer.compute_ns > 0) text += layer_line(layer, n);
  }
  return text + layer_line(activity.total(), n) + "(per token of the answer)\n";
}

}  // namespace

Json result_json(const Engine& engine, const AnswerRequest& request, const GenerateResult& result,
                 bool with_layers) {
  const auto n_prompt = static_cast<double>(result.n_prompt);
  const std::size_t n_answer = result.tokens.size();
  const StreamerStats& stats = engine.experts().stats();
  Json json;
  json["model"] = engine.path();
  json["text"] = result.text;
  json["tokens"] = result.tokens;
  json["finish_reason"] = stop_reason_name(result.reason);
  json["seed"] = request.sampling.seed;
  json["usage"] = {{"prompt_tokens", result.n_prompt},
                   {"completion_tokens", n_answer},
                   {"total_tokens", static_cast<std::size_t>(result.n_prompt) + n_answer}};
  json["timings"] = {{"prompt_seconds", result.prefill_seconds},
                     {"prompt_per_second", per(n_prompt, result.prefill_seconds)},
                     {"answer_seconds", result.decode_seconds},
                     {"answer_per_second", per(number(n_answer), result.decode_seconds)}};
  json["experts"] = {{"hits", stats.total().hits},
                     {"misses", stats.total().misses},
                     {"bytes_read", stats.bytes_read},
                     {"slots", engine.experts().cache().capacity()},
                     {"cache_shrunk", engine.cache_resizes().shrunk},
                     {"cache_grown", engine.cache_resizes().grown},
                     {"prompt", phase_json(result.prefill, with_layers)},
                     {"answer", phase_json(result.decode, with_layers)}};
  json["precision"] = precision_name(engine.precision());
  json["kv"] = kv_type_name(engine.kv_type());
  json["lookahead"] = lookahead_json(engine.governor());
  json["drafts"] = drafts_json(engine, result);
  json["memory"] = {{"ceiling", engine.memory().ceiling()}};
  for (const auto& [tag, bytes] : engine.memory().by_tag()) json["memory"][tag] = bytes;
  return json;
}

std::string stats_text(const Engine& engine, const GenerateResult& result) {
  const auto line = [](const char* what, std::int64_t n, double seconds) {
    return fmt::format("{:<10}{:>6} tokens in {:.2f} s, {:.2f} per second\n", what, n, seconds,
                       per(static_cast<double>(n), seconds));
  };
  const auto experts = [](const char* what, const Activity& activity) {
    const LayerActivity total = activity.total();
    return fmt::format(
        "{:<10}{:>6} of {} experts from memory ({:.1f} %), {} read, {:.2f} s waited\n", what,
        total.hits, total.hits + total.misses, 100 * share(total.hits, total.misses),
        format_bytes(activity.bytes_read), number(total.wait_ns) * 1e-9);
  };
  std::string text = line("prompt", result.n_prompt, result.prefill_seconds);
  text += experts("", result.prefill);
  text += line("answer", static_cast<std::int64_t>(result.tokens.size()), result.decode_seconds);
  text += experts("", result.decode);
  const std::uint64_t used = engine.memory().ceiling() - engine.memory().available();
  text += fmt::format("{:<10}{} of {} allowed:", "memory", format_bytes(used),
                      format_bytes(engine.memory().ceiling()));
  for (const auto& [tag, bytes] : engine.memory().by_tag()) {
    text += fmt::format(" {} {},", tag, format_bytes(bytes));
  }
  text.back() = '\n';
  text += fmt::format("{:<10}{} of {} experts fit\n", "cache", engine.experts().cache().capacity(),
                      engine.experts().store().n_experts_total());
  if (const CacheResizes& resizes = engine.cache_resizes(); resizes.shrunk + resizes.grown > 0) {
    text += fmt::format("{:<10}made room {} times, grew back {} times\n", "", resizes.shrunk,
                        resizes.grown);
  }
  if (result.drafts.drafted > 0) text += drafts_line(engine, result);
  if (!engine.experts().holds_all()) text += engine.governor().describe() + "\n";
  if (result.decode.tokens > 0) text += layer_table(result.decode);
  return text;
}

}  // namespace moeflux::cli
