// A routing trace: which experts a model asked for, pass by pass and layer by layer. Recorded from
// a run or made up (synthetic_trace.h), and replayed against eviction policies (replay.h). The file
// is described in docs/FORMAT.md; everything in it is checked when it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "experts/expert_ids.h"

namespace moeflux {

// Sees what is asked of the streamer, in order. A layer is a bank of experts (ExpertKey::bank).
class RequestObserver {
 public:
  virtual ~RequestObserver() = default;
  // A pass over `n_tokens` tokens begins; the requests of its layers follow.
  virtual void on_step(int n_tokens) = 0;
  virtual void on_request(int layer, std::span<const int> experts) = 0;  // distinct
};

struct TraceLayer {
  int n_experts = 0;
  std::uint64_t record_bytes = 0;  // read when an expert of the layer is missed
};

struct TraceInfo {
  std::string model;
  int top_k = 0;
  std::vector<TraceLayer> layers;

  ExpertIds expert_ids() const;
};

// A whole trace in memory. As an observer it records.
class Trace final : public RequestObserver {
 public:
  struct Request {
    int layer = 0;
    std::span<const int> experts;  // numbered through, as expert_ids() does
  };
  struct Step {
    int n_tokens = 0;
    std::size_t first_request = 0, n_requests = 0;
  };

  explicit Trace(TraceInfo info);

  void on_step(int n_tokens) override;
  void on_request(int layer, std::span<const int> experts) override;

  const TraceInfo& info() const { return info_; }
  const ExpertIds& expert_ids() const { return ids_; }
  std::uint64_t record_bytes(int layer) const {
    return info_.layers[static_cast<std::size_t>(layer)].record_bytes;
  }

  const std::vector<Step>& steps() const { return steps_; }
  std::size_t n_requests() const { return layers_.size(); }
  Request request(std::size_t index) const {
    return {layers_[index], {experts_.data() + first_[index], first_[index + 1] - first_[index]}};
  }
  std::size_t n_uses() const { return experts_.size(); }
  std::int64_t n_tokens() const { return n_tokens_; }

 private:
  TraceInfo info_;
  ExpertIds ids_;
  std::vector<Step> steps_;
  std::vector<int> layers_;         // of each request
  std::vector<std::size_t> first_;  // of each request into experts_, and the end of the last
  std::vector<int> experts_;
  std::int64_t n_tokens_ = 0;
};

// Records into a file. It appears under its name when finish() is called, whole or not at all; a
// recording that was interrupted is valid if it is finished.
class TraceWriter final : public RequestObserver {
 public:
  TraceWriter(const std::string& path, const TraceInfo& info);
  ~TraceWriter() override;

  void on_step(int n_tokens) override;
  void on_request(int layer, std::span<const int> experts) override;
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

void write_trace(const std::string& path, const Trace& trace);

// Throws Error naming the file and what is wrong with it.
Trace read_trace(const std::string& path);

}  // namespace moeflux
