#include "server/service/service_metrics.h"

#include <algorithm>

#include <fmt/format.h>

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

EngineReading ServiceMetrics::engine() const {
  const std::lock_guard lock(mutex_);
  return engine_;
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
  counter("requests_cancelled_total", "answers given up", n_cancelled_);
  counter("requests_failed_total", "answers that went wrong", n_failed_);
  counter("prompt_tokens_total", "tokens of prompts", n_prompt_);
  counter("prompt_tokens_cached_total", "of these, not computed again", n_cached_);
  counter("generated_tokens_total", "tokens of answers", n_generated_);
  counter("prefill_seconds_total", "from a session to the first token", prefill_seconds_);
  counter("decode_seconds_total", "from the first token to the last", decode_seconds_);
  counter("draft_tokens_total", "tokens guessed ahead", n_drafted_);
  counter("draft_tokens_accepted_total", "of these, right", n_accepted_);
  counter("forward_passes_total", "passes over the model", scheduler.passes);
  counter("expert_hits_total", "experts found in memory", engine_.hits);
  counter("expert_misses_total", "experts that had to be read", engine_.misses);
  counter("expert_bytes_read_total", "read of experts", engine_.bytes_read);
  counter("expert_wait_seconds_total", "stood still for a read", engine_.wait_seconds);
  counter("expert_guesses_total", "experts read ahead by a guess", engine_.guessed);
  counter("expert_guesses_used_total", "of these, used", engine_.guesses_used);
  gauge("expert_cache_slots", "experts that fit into the cache", engine_.cache_slots);
  gauge("lookahead_width", "experts per layer being guessed", engine_.lookahead.width);
  gauge("draft_depth", "tokens being guessed ahead", engine_.drafts.depth);
  gauge("memory_bytes", "reserved of the memory ceiling", engine_.memory_bytes);
  text += first_token_.text("moeflux:time_to_first_token_seconds", "from a request to its answer");
  text += between_tokens_.text("moeflux:inter_token_seconds", "between two tokens of an answer");
  text += queue_.text("moeflux:queue_seconds", "until an answer had a session");
  text += histogram_text("moeflux:expert_read_seconds", "to read an expert that was missing",
                         engine_.read_time);
  return text;
}

}  // namespace moeflux
