#include "convert/block_quantizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "quant/block_codec.h"
#include "quant/codec.h"

namespace moeflux {
namespace blocks_of {
namespace {

constexpr int kSuper = 256;  // columns of a block with two levels of scales
constexpr float kLargestHalf = 65504;
// Four values at a time, whatever the processor: so the order of sums is fixed.
using Four = float __attribute__((vector_size(16)));
using FourInts = std::int32_t __attribute__((vector_size(16)));
constexpr int kLanes = 4;

Four load(const float* from) {
  Four four;
  std::memcpy(&four, from, sizeof four);
  return four;
}
float total(const Four& four) {
  return (four[0] + four[2]) + (four[1] + four[3]);
}

float stored(float value) {
  return f16_to_float(float_to_f16(std::clamp(value, -kLargestHalf, kLargestHalf)));
}

void put_half(float value, std::byte* to) {
  const std::uint16_t bits = float_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
}

// Values with what their errors count.
struct Weighted {
  const float* values;
  const float* weights;
};

// The nearest whole number; of a number that is not below `least`.
float nearest(float value, float least = 0) {
  return static_cast<float>(static_cast<int>(value - least + 0.5f)) + least;
}
// N values as scale * code + bias with codes from `least` to `most`.
template <int N>
struct Fit {
  float scale = 0, bias = 0;
  float error = 0;
  std::array<float, N> codes{};

  void choose(const Weighted& in, float least, float most) {
    const float inverse = scale != 0 ? 1 / scale : 0;
    if (!std::isfinite(inverse)) {
      scale = 0;
      return choose(in, least, most);
    }
    const Four lowest = Four{} + least, highest = Four{} + most;
    Four errors{};
    for (int i = 0; i < N; i += kLanes) {
      const Four value = load(in.values + i);
      Four place = (value - bias) * inverse;
      place = place > lowest ? place : lowest;
      place = place < highest ? place : highest;
      const FourInts steps = __builtin_convertvector(place - least + 0.5f, FourInts);
      const Four code = __builtin_convertvector(steps, Four) + least;
      const Four miss = scale * code + bias - value;
      std::memcpy(&codes[i], &code, sizeof code);
      errors += load(in.weights + i) * miss * miss;
    }
    error = total(errors);
  }
};

// Weighted sums of codes and values, their squares and products.
template <int N>
struct Moments {
  float weights = 0, codes = 0, squares = 0, values = 0, products = 0;

  Moments(const Weighted& in, const std::array<float, N>& all) {
    Four sums[5] = {};
    for (int i = 0; i < N; i += kLanes) {
      const Four w = load(in.weights + i), code = load(&all[i]), value = load(in.values + i);
      sums[0] += w;
      sums[1] += w * code;
      sums[2] += w * code * code;
      sums[3] += w * value;
      sums[4] += w * code * value;
    }
    weights = total(sums[0]);
    codes = total(sums[1]);
    squares = total(sums[2]);
    values = total(sums[3]);
    products = total(sums[4]);
  }
};

// ---- a scale, and integers on both sides of zero

template <int N>
Fit<N> fit_centered(const Weighted& in, float least, float most) {
  float largest = 0;
  for (int i = 0; i < N; ++i) {
    if (std::abs(in.values[i]) > std::abs(largest)) largest = in.values[i];
  }
  Fit<N> best;
  best.choose(in, least, most);
  if (largest == 0) return best;
  // The side with one code more takes the largest value; ranges that cut it off come after.
  for (const float keep : {1.0f, 0.97f, 0.94f, 0.9f, 0.86f, 0.8f}) {
    for (const float end : {least, most}) {
      Fit<N> fit{.scale = largest * keep / end};
      for (int step = 0; step < 3; ++step) {
        fit.choose(in, least, most);
        if (fit.error < best.error) best = fit;
        const Moments<N> sums(in, fit.codes);
        if (!(sums.squares > 0)) break;
        fit.scale = sums.products / sums.squares;
      }
    }
  }
  return best;
}

// ---- a scale and a bias that is not above zero, and codes from zero on

template <int N>
Fit<N> fit_biased(const Weighted& in, float most) {
  const auto [least, largest] = std::minmax_element(in.values, in.values + N);
  const float low = std::min(*least, 0.0f), high = std::max(*largest, 0.0f);
  Fit<N> best{.bias = low};
  best.choose(in, 0, most);
  if (high == low) return best;
  for (const float keep : {1.0f, 0.93f, 0.86f, 0.79f, 0.7f}) {
    const float middle = 0.5f * low + 0.5f * high;
    const float bias = std::min(middle + keep * (low - middle), 0.0f);
    Fit<N> fit{.scale = (middle + keep * (high - middle) - bias) / most, .bias = bias};
    for (int step = 0; step < 4; ++step) {
      fit.choose(in, 0, most);
      if (fit.error < best.error) best = fit;
      const Moments<N> sums(in, fit.codes);
      const float spread = sums.weights * sums.squares - sums.codes * sums.codes;
      if (!(spread > 0)) break;
      fit.scale = (sums.weights * sums.products - sums.codes * sums.values) / spread;
      fit.bias = (sums.values - fit.scale * sums.codes) / sums.weights;
      if (fit.bias > 0) {
        fit.bias = 0;
        fit.scale = sums.products / sums.squares;
      }
      if (!(fit.scale > 0)) break;
    }
  }
  return best;
}

// ---- Q8_0

void quantize_q8_0(const Weighted& in, std::byte* out) {
  constexpr int kGroup = 32;
  float largest = 0;
  for (int i = 0; i < kGroup; ++i) largest = std::max(largest, std::abs(in.values[i]));
  Fit<kGroup> fit{.scale = stored(largest / 127)};
  fit.choose(in, -127, 127);
  put_half(fit.scale, out);
  for (int i = 0; i < kGroup; ++i)
    out[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(fit.codes[i]));
}

// ---- Q6_K: scales of 8 bits with a sign for 16 values each

class Q6K {
 public:
  static constexpr int kGroup = 16, kGroups = kSuper / kGroup;

  explicit Q6K(const Weighted& in) : in_(in) {
    float largest = 0;
    std::array<float, kGroups> scales;
    for (int g = 0; g < kGroups; ++g) {
      scales[g] = fit_centered<kGroup>(group(g), -32, 31).scale;
      if (std::abs(scales[g]) > std::abs(largest)) largest = scales[g];
    }
    set_unit(largest / -128);
    if (unit_ == 0) return;
    for (int g = 0; g < kGroups; ++g)
      take(g, nearest(std::clamp(scales[g] / unit_, -128.0f, 127.0f), -128));
    for (int round = 0; round < 2; ++round) {
      fit_unit();
      for (int g = 0; g < kGroups; ++g) improve(g);
    }
  }

  void write(std::byte* out) const {
    std::fill(out, out + 192, std::byte{0});
    for (int i = 0; i < kSuper; ++i) {
      const auto code = static_cast<unsigned>(groups_[i / kGroup].codes[i % kGroup] + 32);
      const int half = i / 128, in_half = i % 128;
      out[64 * half + in_half % 64] |= static_cast<std::byte>((code & 15) << in_half / 64 * 4);
      out[128 + 32 * half + i % 32] |= static_cast<std::byte>((code >> 4) << in_half / 32 * 2);
    }
    for (int g = 0; g < kGroups; ++g)
      out[192 + g] = static_cast<std::byte>(static_cast<std::int8_t>(multiples_[g]));
    put_half(unit_, out + 208);
  }

 private:
  Weighted group(int g) const { return {in_.values + g * kGroup, in_.weights + g * kGroup}; }
  void set_unit(float unit) { unit_ = stored(unit); }

  Fit<kGroup> with(int g, float multiple) const {
    Fit<kGroup> fit{.scale = unit_ * multiple};
    fit.choose(group(g), -32, 31);
    return fit;
  }
  void take(int g, float multiple) {
    multiples_[g] = std::clamp(multiple, -128.0f, 127.0f);
    groups_[g] = with(g, multiples_[g]);
  }
  // The unit that serves all codes best, unless storing it loses more than that.
  void fit_unit() {
    double products = 0, squares = 0;
    float before = 0, after = 0;
    for (int g = 0; g < kGroups; ++g) {
      before += groups_[g].error;
      for (int i = 0; i < kGroup; ++i) {
        const Weighted at = group(g);
        const float whole = multiples_[g] * groups_[g].codes[i];
        products += static_cast<double>(at.weights[i]) * at.values[i] * whole;
        squares += static_cast<double>(at.weights[i]) * whole * whole;
      }
    }
    if (!(squares > 0)) return;
    const Q6K old = *this;
    set_unit(static_cast<float>(products / squares));
    if (unit_ == 0) {
      *this = old;
      return;
    }
    for (int g = 0; g < kGroups; ++g) {
      take(g, multiples_[g]);
      after += groups_[g].error;
    }
    if (after > before) *this = old;
  }
  void improve(int g) {
    const float from = multiples_[g];
    for (const float multiple : {from - 1, from + 1}) {
      if (multiple < -128 || multiple > 127) continue;
      const Fit<kGroup> fit = with(g, multiple);
      if (fit.error >= groups_[g].error) continue;
      groups_[g] = fit;
      multiples_[g] = multiple;
    }
  }

  Weighted in_;
  float unit_ = 0;
  std::array<float, kGroups> multiples_{};
  std::array<Fit<kGroup>, kGroups> groups_{};
};

// ---- Q4_K: scales and biases of 6 bits for 32 values each

class Q4K {
 public:
  static constexpr int kGroup = 32, kGroups = kSuper / kGroup;

  explicit Q4K(const Weighted& in) : in_(in) {
    std::array<Fit<kGroup>, kGroups> fits;
    float scale = 0, bias = 0;
    for (int g = 0; g < kGroups; ++g) {
      fits[g] = fit_biased<kGroup>(group(g), 15);
      scale = std::max(scale, fits[g].scale);
      bias = std::max(bias, -fits[g].bias);
    }
    scale_ = stored(scale / 63);
    least_ = stored(bias / 63);
    for (int g = 0; g < kGroups; ++g) {
      take(g, scale_ > 0 ? nearest(fits[g].scale / scale_) : 0,
           least_ > 0 ? nearest(-fits[g].bias / least_) : 0);
    }
    for (int round = 0; round < 2; ++round) {
      fit_units();
      for (int g = 0; g < kGroups; ++g) improve(g);
    }
  }

  void write(std::byte* out) const {
    put_half(scale_, out);
    put_half(least_, out + 2);
    std::fill(out + 4, out + 16, std::byte{0});
    for (int g = 0; g < kGroups; ++g) {
      const auto s = static_cast<unsigned>(scales_[g]), b = static_cast<unsigned>(leasts_[g]);
      if (g < 4) {
        out[4 + g] |= static_cast<std::byte>(s);
        out[8 + g] |= static_cast<std::byte>(b);
      } else {
        out[8 + g] |= static_cast<std::byte>((s & 15) | (b & 15) << 4);
        out[g] |= static_cast<std::byte>(s >> 4 << 6);
        out[4 + g] |= static_cast<std::byte>(b >> 4 << 6);
      }
    }
    for (int p = 0; p < 4; ++p) {
      for (int i = 0; i < kGroup; ++i) {
        out[16 + 32 * p + i] =
            static_cast<std::byte>(static_cast<unsigned>(groups_[2 * p].codes[i]) |
                                   static_cast<unsigned>(groups_[2 * p + 1].codes[i]) << 4);
      }
    }
  }

 private:
  Weighted group(int g) const { return {in_.values + g * kGroup, in_.weights + g * kGroup}; }

  Fit<kGroup> with(int g, float scale, float least) const {
    Fit<kGroup> fit{.scale = scale_ * scale, .bias = -(least_ * least)};
    fit.choose(group(g), 0, 15);
    return fit;
  }
  void take(int g, float scale, float least) {
    scales_[g] = std::clamp(scale, 0.0f, 63.0f);
    leasts_[g] = std::clamp(least, 0.0f, 63.0f);
    groups_[g] = with(g, scales_[g], leasts_[g]);
  }
  // The two units that serve all codes best, unless storing them loses more than that.
  void fit_units() {
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    float before = 0, after = 0;
    for (int g = 0; g < kGroups; ++g) {
      before += groups_[g].error;
      const Weighted at = group(g);
      for (int i = 0; i < kGroup; ++i) {
        const double w = at.weights[i], a = scales_[g] * groups_[g].codes[i], b = -leasts_[g];
        aa += w * a * a;
        ab += w * a * b;
        bb += w * b * b;
        ax += w * a * at.values[i];
        bx += w * b * at.values[i];
      }
    }
    const double spread = aa * bb - ab * ab;
    const Q4K old = *this;
    if (spread > 1e-12 * aa * bb) {
      scale_ = stored(static_cast<float>((bb * ax - ab * bx) / spread));
      least_ = stored(static_cast<float>((aa * bx - ab * ax) / spread));
    } else if (aa > 0) {
      scale_ = stored(static_cast<float>(ax / aa));
    }
    if (!(scale_ > 0) || least_ < 0) {
      *this = old;
      return;
    }
    for (int g = 0; g < kGroups; ++g) {
      take(g, scales_[g], leasts_[g]);
      after += groups_[g].error;
    }
    if (after > before) *this = old;
  }
  void improve(int g) {
    const float scale = scales_[g], least = leasts_[g];
    for (const float s : {scale - 1, scale, scale + 1}) {
      for (const float b : {least - 1, least, least + 1}) {
        if (s < 0 || s > 63 || b < 0 || b > 63) continue;
        const Fit<kGroup> fit = with(g, s, b);
        if (fit.error >= groups_[g].error) continue;
        groups_[g] = fit;
        scales_[g] = s;
        leasts_[g] = b;
      }
    }
  }

  Weighted in_;
  float scale_ = 0, least_ = 0;  // units of the scales, and of the biases below zero
  std::array<float, kGroups> scales_{}, leasts_{};
  std::array<Fit<kGroup>, kGroups> groups_{};
};

void quantize_block(BlockType type, const Weighted& in, std::byte* out) {
  switch (type) {
    case BlockType::Q8_0:
      return quantize_q8_0(in, out);
    case BlockType::Q4_K:
      return Q4K(in).write(out);
    default:
      return Q6K(in).write(out);
  }
}

}  // namespace
}  // namespace blocks_of

std::uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t size = bits & 0x7FFFFFFFu;
  if (size > 0x7F800000u) return sign | 0x7E00u;   // NaN
  if (size >= 0x477FF000u) return sign | 0x7C00u;  // rounds to more than 65504
  if (size < 0x38800000u) {                        // subnormal: units of 2^-24
    const float units = std::bit_cast<float>(size) * 0x1p24f;
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::lrint(units)));
  }
  const std::uint32_t rounded = size + 0xFFFu + (size >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

bool can_quantize(BlockType type) {
  return type == BlockType::Q8_0 || type == BlockType::Q4_K || type == BlockType::Q6_K;
}

namespace {

// Relative to the mean of the block. Columns that are never used still get their nearest codes.
void weigh(std::span<const float> importance, std::array<float, kMostBlockValues>& weights) {
  constexpr float kLeast = 1e-4f;
  float sum = 0;
  for (const float one : importance) sum += one;
  const float inverse = static_cast<float>(importance.size()) / sum;
  for (std::size_t i = 0; i < importance.size(); ++i)
    weights[i] = std::isfinite(inverse) ? std::max(importance[i] * inverse, kLeast) : 1.0f;
}

}  // namespace

SquaredError quantize_block_row(std::span<const float> row, BlockType type,
                                std::span<const float> importance, std::byte* out) {
  MOEFLUX_ASSERT(can_quantize(type));
  const BlockShape shape = block_shape(type);
  const auto n = static_cast<std::size_t>(shape.values);
  MOEFLUX_ASSERT(row.size() % n == 0 && (importance.empty() || importance.size() == row.size()));
  std::array<float, kMostBlockValues> weights;
  weights.fill(1);
  SquaredError sums;
  std::array<float, kMostBlockValues> decoded;
  for (std::size_t at = 0; at < row.size(); at += n, out += shape.bytes) {
    if (!importance.empty()) weigh(importance.subspan(at, n), weights);
    blocks_of::quantize_block(type, {row.data() + at, weights.data()}, out);
    decode_blocks(type, out, 1, decoded.data());
    for (std::size_t i = 0; i < n; ++i) {
      const double value = row[at + i], miss = decoded[i] - value;
      sums.error += miss * miss;
      sums.norm += value * value;
    }
  }
  return sums;
}

}  // namespace moeflux
