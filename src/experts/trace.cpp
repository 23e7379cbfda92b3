#include "experts/trace.h"

#include "base/error.h"

namespace moeflux {
namespace {

std::vector<int> expert_counts(const TraceInfo& info) {
  std::vector<int> counts;
  counts.reserve(info.layers.size());
  for (const TraceLayer& layer : info.layers) counts.push_back(layer.n_experts);
  return counts;
}

}  // namespace

ExpertIds TraceInfo::expert_ids() const {
  return ExpertIds(expert_counts(*this));
}

Trace::Trace(TraceInfo info) : info_(std::move(info)), ids_(info_.expert_ids()), first_{0} {}

void Trace::on_step(int n_tokens) {
  MOEFLUX_ASSERT(n_tokens > 0);
  steps_.push_back({n_tokens, layers_.size(), 0});
  n_tokens_ += n_tokens;
}

void Trace::on_request(int layer, std::span<const int> experts) {
  MOEFLUX_ASSERT(!steps_.empty() && layer >= 0 && layer < ids_.n_layers());
  for (const int expert : experts) {
    MOEFLUX_ASSERT(expert >= 0 && expert < ids_.n_experts(layer));
    experts_.push_back(ids_.id(layer, expert));
  }
  layers_.push_back(layer);
  first_.push_back(experts_.size());
  ++steps_.back().n_requests;
}

void write_trace(const std::string& path, const Trace& trace) {
  TraceWriter writer(path, trace.info());
  std::vector<int> experts;
  for (const Trace::Step& step : trace.steps()) {
    writer.on_step(step.n_tokens);
    for (std::size_t i = 0; i < step.n_requests; ++i) {
      const Trace::Request request = trace.request(step.first_request + i);
      experts.clear();
      for (const int id : request.experts) experts.push_back(trace.expert_ids().expert(id));
      writer.on_request(request.layer, experts);
    }
  }
  writer.finish();
}

}  // namespace moeflux
