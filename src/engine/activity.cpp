#include "engine/activity.h"

#include "engine/engine.h"

namespace moeflux {

LayerActivity& LayerActivity::operator+=(const LayerActivity& other) {
  hits += other.hits;
  misses += other.misses;
  bytes += other.bytes;
  wait_ns += other.wait_ns;
  compute_ns += other.compute_ns;
  return *this;
}

LayerActivity& LayerActivity::operator-=(const LayerActivity& other) {
  hits -= other.hits;
  misses -= other.misses;
  bytes -= other.bytes;
  wait_ns -= other.wait_ns;
  compute_ns -= other.compute_ns;
  return *this;
}

LayerActivity Activity::total() const {
  LayerActivity sum{.name = "all"};
  for (const LayerActivity& layer : layers) sum += layer;
  return sum;
}

Activity activity_of(const Engine& engine) {
  const StreamerStats& stats = engine.experts().stats();
  const std::vector<std::uint64_t>& times = engine.forward().layer_ns();
  const auto layer = [&](std::string name, const auto& ffn, std::uint64_t ns) {
    LayerActivity activity{.name = std::move(name), .compute_ns = ns};
    if (const auto* moe = std::get_if<Moe<Stored>>(&ffn)) {
      const BankStats& bank = stats.banks[static_cast<std::size_t>(moe->bank)];
      activity.hits = bank.hits;
      activity.misses = bank.misses;
      activity.bytes = bank.bytes_missed;
      activity.wait_ns = bank.wait_ns;
      activity.compute_ns -= bank.wait_ns;
    }
    return activity;
  };

  const ModelTensors<Stored>& tensors = engine.description().index.tensors;
  Activity activity;
  for (std::size_t i = 0; i < tensors.layers.size(); ++i) {
    activity.layers.push_back(layer(std::to_string(i), tensors.layers[i].ffn, times[i]));
  }
  if (tensors.mtp) activity.layers.push_back(layer("mtp", tensors.mtp->layer.ffn, times.back()));
  activity.ops.assign(engine.op_times().begin(), engine.op_times().end());
  activity.tokens = stats.tokens;
  activity.bytes_read = stats.bytes_read;
  activity.prefetched = stats.prefetched;
  activity.prefetches_used = stats.prefetches_used;
  activity.drive_busy_ns = stats.busy_ns;
  return activity;
}

Activity operator-(Activity after, const Activity& before) {
  for (std::size_t i = 0; i < after.layers.size(); ++i) after.layers[i] -= before.layers[i];
  for (std::size_t i = 0; i < after.ops.size(); ++i) {
    after.ops[i].calls -= before.ops[i].calls;
    after.ops[i].ns -= before.ops[i].ns;
  }
  after.tokens -= before.tokens;
  after.bytes_read -= before.bytes_read;
  after.prefetched -= before.prefetched;
  after.prefetches_used -= before.prefetches_used;
  after.drive_busy_ns -= before.drive_busy_ns;
  return after;
}

}  // namespace moeflux
