// A tensor of a synthetic model as a recipe: its shape and the statistics of its weights. The bytes
// of any part of it are made on demand by fill_plane(), so that a model of any size needs no
// memory.
//
// A matrix is quantized: its codes are random bits, and the scale (and bias) of each group of
// columns places them around zero with the wanted standard deviation. Some columns are special
// because some channels of the residual stream are (synth_plan.h): the first kConstantChannels hold
// a constant in every token, so that weights on them act as biases of the output rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "source/checksum.h"

namespace moeflux {

// Random numbers of synthetic weights, a pure function of (seed, name, index): any part of any
// tensor can be made by any thread, in any order and for any file format, and is always the same.
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

inline constexpr int kSynthGroup = 64;  // columns that share a scale
inline constexpr int kSynthMxGroup = 32;
inline constexpr int kConstantChannels = kSynthGroup;

struct SynthMatrix {
  std::string module;  // "language_model.model.layers.0.mlp.gate"
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  int bits = 4;                                        // 4 or 8; 16: BF16, not quantized
  bool is_mxfp4 = false;                               // E2M1 codes, E8M0 scales of 32 columns
  double std = 0;                                      // of the weights
  std::function<double(std::int64_t row)> row_gain{};  // factor on std; none: 1
  std::function<double(std::int64_t row)> constant{};  // weights on the first kConstantChannels
  int slow_columns = 0;                                // that follow those
  double slow_gain = 1;                                // factor on std in them
};

struct SynthVector {
  std::string name;
  DType dtype = DType::BF16;  // or F32
  std::vector<std::int64_t> shape;
  std::function<double(std::int64_t index)> value;
};

// One tensor of the checkpoint: a vector, or a plane of a matrix.
struct SynthPlane {
  std::string name;
  DType dtype = DType::BF16;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
  enum class Part { Codes, Scales, Biases, Exponents, Plain } part = Part::Plain;
};
std::vector<SynthPlane> planes_of(const SynthMatrix& matrix);
SynthPlane plane_of(const SynthVector& vector);

// Bytes [offset, offset + out.size()) of a plane. `offset` is a multiple of 8.
void fill_plane(const SynthMatrix& matrix, const SynthPlane& plane, const RandomStream& random,
                std::uint64_t offset, std::span<std::byte> out);
void fill_plane(const SynthVector& vector, std::uint64_t offset, std::span<std::byte> out);

}  // namespace moeflux
