// Random numbers for tests: the same on every machine and in every standard library.
#pragma once

#include <cstdint>
#include <vector>

namespace moeflux::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {  // splitmix64
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  float between(double low, double high) {
    return static_cast<float>(low + (high - low) * uniform());
  }
  std::int64_t integer(std::int64_t low, std::int64_t high) {  // both ends included
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(double probability) { return uniform() < probability; }

  // Centred on zero.
  std::vector<float> floats(std::int64_t n, double scale = 1) {
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = between(-scale, scale);
    return values;
  }
  std::vector<std::int32_t> tokens(std::int64_t n, std::int64_t n_vocab) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(n));
    for (auto& value : values) value = static_cast<std::int32_t>(integer(0, n_vocab - 1));
    return values;
  }

 private:
  std::uint64_t state_;
};

}  // namespace moeflux::test
