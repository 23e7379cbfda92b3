#include "server/service/service_metrics.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "server/service/model_pool.h"

namespace moeflux {
namespace {

const std::vector<double> kSeconds{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};
const std::vector<double> kTokenSeconds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};

template <class Number>
void add_line(std::string& text, const char* type, const char* name, const char* help,
              Number value) {
  text += fmt::format("# HELP moeflux:{0} {1}\n# TYPE moeflux:{0} {2}\nmoeflux:{0} {3}\n", name,
                      help, type, value);
}

// [bounds + 1] counts, the last one of what lies beyond all bounds.
std::string histogram_text(const std::string& name, const std::string& help,
                           std::span<const double> bounds, std::span<const std::uint64_t> counts,
                           double sum) {
  std::string text = fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    n += counts[i];
    text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bounds[i], n);
  }
  n += counts.back();
  return text +
         fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, n, sum);
}

std::string histogram_text(const std::string& name, const std::string& help,
                           const TimeHistogram& times) {
  std::vector<double> bounds;
  for (std::size_t i = 0; i + 1 < TimeHistogram::kBuckets; ++i)
    bounds.push_back(static_cast<double>(TimeHistogram::bound_ns(i)) / 1e9);
  return histogram_text(name, help, bounds, times.counts, static_cast<double>(times.sum_ns) / 1e9);
}

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

}  // namespace

void Histogram::add(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<std::size_t>(bucket)];
  sum_ += value;
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
  return histogram_text(name, help, bounds_, counts_, sum_);
}

ServiceMetrics::ServiceMetrics()
    : first_token_(kSeconds), between_tokens_(kTokenSeconds), queue_(kSeconds) {}

void ServiceMetrics::add_first_token_time(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void ServiceMetrics::add_token_time(double seconds) {
  const std::lock_guard lock(mutex_);
  between_tokens_.add(seconds);
}

void ServiceMetrics::add_ended(bool cancelled, bool failed, const JobStats& stats) {
  const std::lock_guard lock(mutex_);
  ++(failed ? n_failed_ : cancelled ? n_cancelled_ : n_finished_);
  n_prompt_ += stats.n_prompt;
  n_cached_ += stats.n_cached;
  n_generated_ += stats.n_tokens;
  n_drafted_ += stats.n_drafted;
  n_accepted_ += stats.n_accepted;
  prefill_seconds_ += stats.prefill_seconds;
  decode_seconds_ += stats.decode_seconds;
  queue_.add(stats.queue_seconds);
}

void ServiceMetrics::set_engine(const EngineReading& reading) {
  const std::lock_guard lock(mutex_);
  engine_ = reading;
}

std::string ServiceMetrics::text(const SchedulerStats& scheduler, std::size_t n_connections) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  const auto counter = [&](const char* name, const char* help, auto value) {
    add_line(text, "counter", name, help, value);
  };
  const auto gauge = [&](const char* name, const char* help, auto value) {
    add_line(text, "gauge", name, help, value);
  };
  gauge("requests_running", "answers that have a session", scheduler.n_running);
  gauge("requests_waiting", "answers that wait for a session", scheduler.n_waiting);
  gauge("connections", "open connections", n_connections);
  counter("requests_finished_total", "answers given to their end", n_finished_);
  counter("requests_cancelled_total", "answers cancelled", n_cancelled_);
  counter("requests_failed_total", "answers that went wrong", n_failed_);
  counter("prompt_tokens_total", "tokens of prompts", n_prompt_);
  counter("prompt_tokens_cached_total", "of these, not computed again", n_cached_);
  counter("generated_tokens_total", "tokens of answers", n_generated_);
  counter("prefill_seconds_total", "from a session to the first token", prefill_seconds_);
  counter("decode_seconds_total", "from the first token to the last", decode_seconds_);
  counter("draft_tokens_total", "tokens drafted", n_drafted_);
  counter("draft_tokens_accepted_total", "of these, accepted", n_accepted_);
  counter("forward_passes_total", "passes over the model", scheduler.passes);
  counter("expert_hits_total", "experts found in memory", engine_.hits);
  counter("expert_misses_total", "experts that had to be read", engine_.misses);
  counter("expert_bytes_read_total", "read of experts", engine_.bytes_read);
  counter("expert_wait_seconds_total", "waited for a read", engine_.wait_seconds);
  counter("expert_guesses_total", "experts prefetched", engine_.prefetched);
  counter("expert_guesses_used_total", "of these, used", engine_.prefetches_used);
  gauge("expert_cache_slots", "experts that fit into the cache", engine_.cache_slots);
  gauge("lookahead_width", "experts prefetched per layer", engine_.lookahead.width);
  gauge("draft_depth", "tokens drafted at a time", engine_.drafts.depth);
  gauge("memory_bytes", "reserved of the memory ceiling", engine_.memory_bytes);
  text += first_token_.text("moeflux:time_to_first_token_seconds", "from a request to its answer");
  text += between_tokens_.text("moeflux:inter_token_seconds", "between two tokens of an answer");
  text += queue_.text("moeflux:queue_seconds", "until an answer had a session");
  text += histogram_text("moeflux:expert_read_seconds", "to read an expert that was missing",
                         engine_.read_time);
  return text;
}

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
  add_line(text, "gauge", "models_loaded", "models in memory", stats.n_loaded);
  add_line(text, "counter", "model_loads_total", "models loaded", stats.n_loads);
  add_line(text, "counter", "model_unloads_total", "models unloaded", stats.n_unloads);
  add_line(text, "counter", "model_load_failures_total", "models that could not be loaded",
           stats.n_failures);
  add_line(text, "gauge", "model_requests_waiting", "requests that wait for their model",
           stats.n_waiting);
  add_line(text, "gauge", "models_memory_bytes", "planned for the models in memory",
           stats.used_bytes);
  add_line(text, "gauge", "models_memory_ceiling_bytes", "all that models may take", stats.ceiling);
  std::vector<std::pair<std::string, std::string>> texts;
  for (const PoolModel& each : pool.loaded()) {
    GenerationService& service = *each.lease.service;
    texts.emplace_back(each.entry.name, service.metrics().text(service.stats(), n_connections));
  }
  return text + join_metrics(texts);
}

}  // namespace moeflux
