// Activations for benchmarks: any values of moderate size.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace moeflux {

inline std::vector<float> random_floats(std::int64_t n) {
  static std::mt19937 random(1);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& value : out) value = values(random);
  return out;
}

}  // namespace moeflux
