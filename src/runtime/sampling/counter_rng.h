// Random bits as a pure function of (seed, step): no state to keep, save or rewind, and the same on
// every machine.
#pragma once

#include <cstdint>

namespace moeflux {

// A bijection of 64-bit words in which every input bit reaches every output bit (the finalizer of
// SplitMix64).
constexpr std::uint64_t mix_bits(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Word number `step` of the stream of `seed`: SplitMix64 started at the mixed seed, so that
// neighbouring seeds do not give shifted copies of one stream.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t step) {
  constexpr std::uint64_t kWeyl = 0x9e3779b97f4a7c15u;
  return mix_bits(mix_bits(seed + kWeyl) + (step + 1) * kWeyl);
}

// Maps 64 random bits to 0 .. bound-1. The bias is below bound / 2^64.
constexpr std::uint64_t scale_to(std::uint64_t bits, std::uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits) * bound) >> 64);
}

}  // namespace moeflux
