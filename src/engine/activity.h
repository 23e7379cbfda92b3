// What the layers of a model did so far: where the time went and what was read for it. Counters
// that only grow; take one before and one after, and subtract.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/timed_backend.h"

namespace moeflux {

class Engine;

struct LayerActivity {
  std::string name;  // "0", "1", ..., "mtp"
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t bytes = 0;  // read because of misses
  std::uint64_t wait_ns = 0;
  std::uint64_t compute_ns = 0;  // everything but waiting

  LayerActivity& operator+=(const LayerActivity& other);
  LayerActivity& operator-=(const LayerActivity& other);
};

struct Activity {
  std::vector<LayerActivity> layers;
  std::vector<OpTime> ops;  // of the backend, always the same kinds
  std::uint64_t tokens = 0;
  std::uint64_t bytes_read = 0;  // for misses, prefetches and warming
  std::uint64_t prefetched = 0;
  std::uint64_t prefetches_used = 0;
  std::uint64_t drive_busy_ns = 0;

  LayerActivity total() const;
};

Activity activity_of(const Engine& engine);
Activity operator-(Activity after, const Activity& before);

}  // namespace moeflux
