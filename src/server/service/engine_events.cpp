#include "server/service/engine_events.h"

#include <array>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

namespace moeflux {
namespace {

constexpr std::array<std::string_view, 4> kLocationNames{"drive", "reading", "memory", "device"};

// One digit for each expert.
std::string locations_text(const std::vector<ExpertLocation>& locations) {
  std::string text;
  text.reserve(locations.size());
  for (const ExpertLocation each : locations)
    text += static_cast<char>('0' + static_cast<int>(each));
  return text;
}

void append_number(std::string& list, std::size_t number) {
  if (list.size() > 1) list += ',';
  fmt::format_to(std::back_inserter(list), "{}", number);
}

// The numbers of experts, each as often as it was asked for.
std::string uses_text(const std::vector<std::uint32_t>& counts) {
  // What comes of a stall of minutes need not be told one by one.
  constexpr std::uint32_t kMost = 16;
  std::string list = "[";
  for (std::size_t id = 0; id < counts.size(); ++id) {
    for (std::uint32_t i = 0; i < std::min(counts[id], kMost); ++i) append_number(list, id);
  }
  return list + "]";
}

// {"reading":[3,17],"memory":[4]}
std::string moved_text(const std::vector<ExpertLocation>& before,
                       const std::vector<ExpertLocation>& after) {
  std::array<std::string, kLocationNames.size()> lists;
  lists.fill("[");
  for (std::size_t id = 0; id < after.size(); ++id) {
    if (after[id] != before[id]) append_number(lists[static_cast<std::size_t>(after[id])], id);
  }
  std::string text = "{";
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].size() == 1) continue;
    if (text.size() > 1) text += ',';
    text += fmt::format("\"{}\":{}]", kLocationNames[i], lists[i]);
  }
  return text + "}";
}

Json layers_json(const std::vector<WatchedBank>& banks) {
  Json layers = Json::array();
  for (const WatchedBank& bank : banks) {
    layers.push_back({{"layer", bank.layer},
                      {"experts", bank.n_experts},
                      {"top_k", bank.top_k},
                      {"expert_bytes", bank.expert_bytes}});
  }
  return layers;
}

Json lookahead_json(const EngineFrame& frame) {
  if (frame.fixed_lookahead >= 0) return {{"width", frame.fixed_lookahead}, {"fixed", true}};
  const LookaheadGovernor::Report& report = frame.lookahead;
  return {{"width", report.width},         {"fixed", false},
          {"on_trial", report.on_trial},   {"gain", report.gain},
          {"precision", report.precision}, {"wait_share", report.wait_share},
          {"switches", report.switches}};
}

}  // namespace

WatchedModel watched_model(Engine& engine, int n_parallel) {
  return {.family = engine.config().family,
          .precision = std::string(precision_name(engine.precision())),
          .kv_type = std::string(kv_type_name(engine.kv_type())),
          .backend = engine.backend().name(),
          .n_threads = engine.backend().n_threads(),
          .context_length = engine.context_length(),
          .n_parallel = n_parallel,
          .dense_bytes_per_token = engine.sizes().dense_bytes_per_token,
          .expert_bytes_per_token = engine.sizes().expert_bytes_per_token(),
          .memory_ceiling = engine.memory().ceiling(),
          .banks = engine.watch().banks()};
}

Json engine_sections(const WatchedModel& model, const EngineView& view) {
  const EngineFrame& frame = view.frame;
  Json owners = Json::object();
  for (const auto& [owner, bytes] : view.memory) {
    if (bytes > 0) owners[owner] = bytes;
  }
  return {{"counters",
           {{"tokens", view.n_drawn},
            {"prompt_tokens", view.n_prompt_rows},
            {"passes", frame.passes},
            {"hits", frame.hits},
            {"misses", frame.misses},
            {"bytes_read", frame.bytes_read},
            {"bytes_used", frame.bytes_used},
            {"prefetched", frame.prefetched},
            {"prefetches_used", frame.prefetches_used},
            {"warmed", frame.warmed},
            {"wait_seconds", frame.wait_seconds},
            {"drive_busy_seconds", frame.drive_busy_seconds}}},
          {"answers", {{"running", view.n_running}, {"waiting", view.n_waiting}}},
          {"cache",
           {{"bytes", frame.cache.bytes},
            {"capacity_bytes", frame.cache.capacity_bytes},
            {"held_bytes", frame.cache.held_bytes},
            {"shrunk", frame.cache.shrunk},
            {"grown", frame.cache.grown},
            {"cause", frame.cache.cause}}},
          {"lookahead", lookahead_json(frame)},
          {"drafts",
           {{"most", frame.max_drafts},
            {"depth", frame.drafts.depth},
            {"on_trial", frame.drafts.on_trial},
            {"gain", frame.drafts.gain},
            {"switches", frame.drafts.switches}}},
          {"memory",
           {{"ceiling", model.memory_ceiling},
            {"owners", std::move(owners)},
            {"resident", view.resident_bytes}}},
          {"machine",
           {{"drive_bytes_per_second", frame.limits.drive},
            {"memory_bytes_per_second", frame.limits.memory}}}};
}

std::string engine_state(const WatchedModel& model, const std::string& name, const EngineView& view,
                         const Json& sections) {
  Json state = {{"version", 1},
                {"seconds", view.frame.seconds},
                {"model",
                 {{"name", name},
                  {"family", model.family},
                  {"precision", model.precision},
                  {"kv", model.kv_type},
                  {"backend", model.backend},
                  {"threads", model.n_threads},
                  {"context", model.context_length},
                  {"parallel", model.n_parallel},
                  {"dense_bytes_per_token", model.dense_bytes_per_token},
                  {"expert_bytes_per_token", model.expert_bytes_per_token}}},
                {"layers", layers_json(model.banks)},
                {"locations", locations_text(view.frame.locations)}};
  state.update(sections);
  return dump_json(state);
}

std::string engine_change(const std::vector<ExpertLocation>& locations_before,
                          const EngineFrame& frame, const Json& sections_before,
                          const Json& sections) {
  std::string text = fmt::format(R"({{"seconds":{:.4f})", frame.seconds);
  text += ",\"moved\":" + moved_text(locations_before, frame.locations);
  text += ",\"hits\":" + uses_text(frame.uses.hits);
  text += ",\"misses\":" + uses_text(frame.uses.misses);
  for (const auto& [name, section] : sections.items()) {
    if (section != sections_before.at(name))
      text += fmt::format(",\"{}\":{}", name, dump_json(section));
  }
  return text + "}";
}

}  // namespace moeflux
