#include "server/service/pool_metrics.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace moeflux {
namespace {

struct MetricFamily {
  std::string name;
  std::string head;  // "# HELP" and "# TYPE"
  std::string samples;
};

std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\n')
      out += "\\n";
    else
      out += c == '\\' || c == '"' ? std::string{'\\', c} : std::string{c};
  }
  return out;
}

// `a{le="1"} 2` -> `a{model="m",le="1"} 2`.
std::string labelled(std::string_view line, const std::string& label) {
  const std::size_t end = line.find_first_of("{ ");
  if (end == std::string_view::npos) return std::string(line);
  const std::string_view name = line.substr(0, end), rest = line.substr(end + 1);
  return line[end] == '{' ? fmt::format("{}{{{},{}", name, label, rest)
                          : fmt::format("{}{{{}}} {}", name, label, rest);
}

// "# HELP name ..." -> "name".
std::string_view name_in(std::string_view comment) {
  comment.remove_prefix(std::min<std::size_t>(comment.size(), 7));
  return comment.substr(0, comment.find(' '));
}

void add_text(std::string_view text, const std::string& model, std::vector<MetricFamily>& all) {
  const std::string label = fmt::format("model=\"{}\"", escaped(model));
  std::size_t family = all.size();
  bool is_new = false;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with("# HELP ")) {
      const std::string_view name = name_in(line);
      const auto found = std::find_if(all.begin(), all.end(),
                                      [&](const MetricFamily& each) { return each.name == name; });
      family = static_cast<std::size_t>(found - all.begin());
      is_new = found == all.end();
      if (is_new) all.push_back({std::string(name), {}, {}});
    }
    if (line.empty() || family >= all.size()) continue;
    if (!line.starts_with('#'))
      all[family].samples += labelled(line, label) + "\n";
    else if (is_new)
      all[family].head += std::string(line) + "\n";
  }
}

template <class Number>
std::string sample(const char* name, const char* type, const char* help, Number value) {
  return fmt::format("# HELP moeflux:{0} {1}\n# TYPE moeflux:{0} {2}\nmoeflux:{0} {3}\n", name,
                     help, type, value);
}

}  // namespace

std::string join_metrics(const std::vector<std::pair<std::string, std::string>>& text_of_models) {
  std::vector<MetricFamily> all;
  for (const auto& [model, text] : text_of_models) add_text(text, model, all);
  std::string joined;
  for (const MetricFamily& each : all) joined += each.head + each.samples;
  return joined;
}

std::string pool_metrics(ModelPool& pool, std::size_t n_connections) {
  const PoolStats stats = pool.stats();
  std::string text;
  text += sample("models_loaded", "gauge", "models in memory", stats.n_loaded);
  text += sample("model_loads_total", "counter", "models loaded", stats.n_loads);
  text += sample("model_unloads_total", "counter", "models unloaded", stats.n_unloads);
  text += sample("model_load_failures_total", "counter", "models that could not be loaded",
                 stats.n_failures);
  text += sample("model_requests_waiting", "gauge", "requests that wait for their model",
                 stats.n_waiting);
  text +=
      sample("models_memory_bytes", "gauge", "planned for the models in memory", stats.used_bytes);
  text += sample("models_memory_ceiling_bytes", "gauge", "all that models may take", stats.ceiling);
  std::vector<std::pair<std::string, std::string>> texts;
  for (const PoolModel& each : pool.loaded()) {
    GenerationService& service = *each.lease.service;
    texts.emplace_back(each.entry.name, service.metrics().text(service.stats(), n_connections));
  }
  return text + join_metrics(texts);
}

}  // namespace moeflux
