#include "convert/affine_quantizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "quant/codec.h"

namespace moeflux {
namespace {

constexpr int kMaxGroup = 128;
constexpr int kLanes = 8;  // sums in a fixed order that a compiler can still turn into vectors
constexpr int kRefinements = 3;

// How much of a group's range is left between the outermost codes: few codes serve the many small
// numbers better than the few large ones.
constexpr std::array<float, 6> kNarrowings{1.0f, 0.92f, 0.84f, 0.76f, 0.68f, 0.6f};

int n_narrowings(int bits) {
  return bits <= 3 ? 6 : bits <= 4 ? 4 : 2;
}

float stored(float value) {
  return bf16_to_float(float_to_bf16(value));
}

using Sums = std::array<float, kLanes>;

float total(const Sums& sums) {
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

struct Choice {
  float scale = 0;
  float bias = 0;
  double error = std::numeric_limits<double>::infinity();
  std::array<float, kMaxGroup> codes{};
};

class Group {
 public:
  Group(std::span<const float> values, int bits)
      : values_(values), max_code_(static_cast<float>((1 << bits) - 1)), bits_(bits) {}

  // The codes, scale and bias with the smallest error that the search found.
  const Choice& solve() {
    const auto [low, high] = std::minmax_element(values_.begin(), values_.end());
    if (*low == *high) {
      try_constant(*low);
      return best_;
    }
    const float middle = 0.5f * *low + 0.5f * *high;
    for (int i = 0; i < n_narrowings(bits_); ++i) {
      const float keep = kNarrowings[static_cast<std::size_t>(i)];
      const float begin = middle + keep * (*low - middle);
      const float end = middle + keep * (*high - middle);
      attempt((end - begin) / max_code_, begin);
      for (int step = 0; step < kRefinements; ++step) refine();
    }
    if (!found_) {  // values so close to each other, or so far apart, that no scale can be stored
      keep_constant(middle);
      return best_;
    }
    // The last bit of a stored scale moves the highest code by a good part of a step when there
    // are many codes.
    for (const int ulp : {-1, 1}) nudge(ulp);
    return best_;
  }

 private:
  void try_constant(float value) {
    // One code is enough to correct what rounding the bias lost.
    attempt(value - stored(value), stored(value));
    if (!found_) keep_constant(value);
  }

  // Every weight becomes `value`, or the largest number of its sign that can be stored.
  void keep_constant(float value) {
    constexpr float kLargest = 3.3895314e38f;  // of BF16
    best_ = {.bias = stored(std::clamp(value, -kLargest, kLargest)), .error = 0};
    for (const float v : values_) best_.error += std::pow(static_cast<double>(v) - best_.bias, 2);
  }

  // Takes scale and bias as they would be stored, chooses codes for them, keeps the best.
  void attempt(float scale, float bias) {
    current_.scale = stored(scale);
    current_.bias = stored(bias);
    const float inverse = 1.0f / current_.scale;
    if (!std::isfinite(current_.scale) || !std::isfinite(inverse) ||
        !std::isfinite(current_.bias)) {
      return;
    }
    Sums errors{};
    const std::size_t n = values_.size();
    for (std::size_t i = 0; i < n; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const float value = values_[i + lane];
        const float place = std::clamp((value - current_.bias) * inverse, 0.0f, max_code_);
        const float code = static_cast<float>(static_cast<int>(place + 0.5f));
        const float miss = current_.scale * code + current_.bias - value;
        current_.codes[i + lane] = code;
        errors[lane] += miss * miss;
      }
    }
    current_.error = total(errors);
    if (found_ && !(current_.error < best_.error)) return;
    best_ = current_;
    found_ = true;
  }

  // The line through the points (code, value) with the least squared error, for the current codes.
  void refine() {
    Sums codes{}, squares{}, values{}, products{};
    const std::size_t n = values_.size();
    for (std::size_t i = 0; i < n; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const float code = current_.codes[i + lane];
        const float value = values_[i + lane];
        codes[lane] += code;
        squares[lane] += code * code;
        values[lane] += value;
        products[lane] += code * value;
      }
    }
    const double count = static_cast<double>(n), sum = total(codes), value_sum = total(values);
    const double spread = count * total(squares) - sum * sum;
    if (!(spread > 0)) return;  // one code for all
    const double slope = (count * total(products) - sum * value_sum) / spread;
    const float scale = stored(static_cast<float>(slope));
    // The bias that is best for the scale as stored.
    attempt(scale, static_cast<float>((value_sum - static_cast<double>(scale) * sum) / count));
  }

  void nudge(int ulp) {
    const Choice from = best_;
    const auto bits = static_cast<std::uint16_t>(float_to_bf16(from.scale) + ulp);
    const float scale = bf16_to_float(bits);
    double sum = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      sum += static_cast<double>(values_[i]) - static_cast<double>(scale) * from.codes[i];
    }
    attempt(scale, static_cast<float>(sum / static_cast<double>(values_.size())));
  }

  std::span<const float> values_;
  float max_code_;
  int bits_;
  Choice best_, current_;
  bool found_ = false;  // whether best_ is the result of an attempt
};

// 8 codes of `bits` bits are exactly `bits` bytes.
void pack_codes(const float* codes, int count, int bits, std::byte* out) {
  for (int i = 0; i < count; i += 8) {
    std::uint64_t word = 0;
    for (int j = 0; j < 8; ++j) {
      word |= static_cast<std::uint64_t>(codes[i + j]) << (j * bits);
    }
    std::memcpy(out, &word, static_cast<std::size_t>(bits));
    out += bits;
  }
}

}  // namespace

std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

double SquaredError::relative() const {
  return norm > 0    ? std::sqrt(error / norm)
         : error > 0 ? std::numeric_limits<double>::infinity()
                     : 0;
}

SquaredError quantize_affine_row(std::span<const float> row, int bits, int group, AffineRow out) {
  MOEFLUX_ASSERT(group > 0 && group <= kMaxGroup && group % kLanes == 0);
  MOEFLUX_ASSERT(row.size() % static_cast<std::size_t>(group) == 0);
  SquaredError sums;
  for (std::size_t at = 0; at < row.size(); at += static_cast<std::size_t>(group)) {
    const std::span<const float> values = row.subspan(at, static_cast<std::size_t>(group));
    Group solver(values, bits);
    const Choice& choice = solver.solve();
    const std::uint16_t scale = float_to_bf16(choice.scale), bias = float_to_bf16(choice.bias);
    pack_codes(choice.codes.data(), group, bits, out.data);
    std::memcpy(out.scales, &scale, sizeof scale);
    std::memcpy(out.biases, &bias, sizeof bias);
    out.data += group * bits / 8;
    out.scales += sizeof scale;
    out.biases += sizeof bias;
    sums.error += choice.error;
    for (const float value : values) sums.norm += static_cast<double>(value) * value;
  }
  return sums;
}

}  // namespace moeflux
