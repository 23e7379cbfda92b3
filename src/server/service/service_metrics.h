// The counters behind /metrics, in the Prometheus text format. Any thread may add and read.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "server/service/run_report.h"

namespace moeflux {

class ModelPool;

// Counts of values by upper bounds, as Prometheus wants them.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  // With "# HELP", "# TYPE" and all of its lines.
  std::string text(const std::string& name, const std::string& help) const;

 private:
  std::vector<double> bounds_;         // ascending
  std::vector<std::uint64_t> counts_;  // [bounds + 1], not cumulative
  double sum_ = 0;
};

class ServiceMetrics {
 public:
  ServiceMetrics();

  void add_first_token_time(double seconds);
  void add_token_time(double seconds);
  void add_ended(bool cancelled, bool failed, const JobStats& stats);
  void set_engine(const EngineReading& reading);

  std::string text(const SchedulerStats& scheduler, std::size_t n_connections) const;

 private:
  mutable std::mutex mutex_;
  Histogram first_token_, between_tokens_, queue_;
  std::uint64_t n_finished_ = 0, n_cancelled_ = 0, n_failed_ = 0;
  std::int64_t n_prompt_ = 0, n_cached_ = 0, n_generated_ = 0, n_drafted_ = 0, n_accepted_ = 0;
  double prefill_seconds_ = 0, decode_seconds_ = 0;
  EngineReading engine_;
};

// The metrics of a server with several models: its own, and those of each model in memory.
std::string pool_metrics(ModelPool& pool, std::size_t n_connections);
// {model, metrics} of several models as one text: the lines of a name together, each with the label
// model="...".
std::string join_metrics(const std::vector<std::pair<std::string, std::string>>& text_of_models);

}  // namespace moeflux
