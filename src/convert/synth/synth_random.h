// Random numbers of synthetic weights, a pure function of (seed, name, index): any part of any
// tensor can be made by any thread, in any order and for any file format, and is always the same.
#pragma once

#include <cstdint>
#include <string_view>

#include "source/checksum.h"

namespace moeflux {

class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view name)
      : key_(mix(checksum(name) + mix(seed + kWeyl))) {}

  // A stream of its own for each index: for each expert of a bank.
  RandomStream fork(std::uint64_t index) const { return RandomStream(mix(key_ + ~index)); }

  std::uint64_t word(std::uint64_t index) const { return mix(key_ + (index + 1) * kWeyl); }
  // In [0, 1).
  double uniform(std::uint64_t index) const {
    return static_cast<double>(word(index) >> 11) * 0x1p-53;
  }
  double sign(std::uint64_t index) const { return word(index) >> 63 != 0 ? 1.0 : -1.0; }

 private:
  explicit RandomStream(std::uint64_t key) : key_(key) {}

  // SplitMix64: a counter stepped by an odd constant, and a bijection that mixes it.
  static constexpr std::uint64_t kWeyl = 0x9e3779b97f4a7c15u;
  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  std::uint64_t key_;
};

}  // namespace moeflux
