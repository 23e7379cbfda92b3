#include "convert/synth/synth_tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "convert/affine_quantizer.h"

namespace moeflux {
namespace {

// Words of a stream are numbered: codes from 0, choices of scales from here.
constexpr std::uint64_t kFirstScaleWord = std::uint64_t{1} << 60;

// Scales of a group: 8 magnitudes with a mean square of 1, either sign, as quantizers make them.
constexpr int kScaleChoices = 16;

double scale_choice(int choice) {
  constexpr double kSpread = 0.05;
  const double step = (choice % 8) - 3.5;
  const double rms = std::sqrt(1 + kSpread * kSpread * 5.25);  // 5.25: mean square of the steps
  return (1 + kSpread * step) / rms * (choice < 8 ? 1 : -1);
}

// Codes are uniform over 0 .. 2^bits - 1.
double code_mean(int bits) {
  return ((1 << bits) - 1) / 2.0;
}
double code_std(int bits) {
  const double levels = 1 << bits;
  return std::sqrt((levels * levels - 1) / 12);
}

// 256 values at the middle of equal shares of a normal distribution.
const std::array<float, 256>& normal_quantiles() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double p = (static_cast<double>(i) + 0.5) / 256;
      double low = -5, high = 5;
      for (int step = 0; step < 60; ++step) {
        const double middle = (low + high) / 2;
        (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
      }
      values[i] = static_cast<float>(low);
      sum += low * low;
    }
    for (float& value : values) value /= static_cast<float>(std::sqrt(sum / 256));
    return values;
  }();
  return table;
}

void store16(std::span<std::byte> out, std::int64_t index, std::uint16_t value) {
  std::memcpy(out.data() + 2 * index, &value, 2);
}

void fill_codes(const RandomStream& random, std::uint64_t offset, std::span<std::byte> out) {
  std::uint64_t index = offset / 8;
  std::size_t at = 0;
  for (; at + 8 <= out.size(); at += 8, ++index) {
    const std::uint64_t word = random.word(index);
    std::memcpy(out.data() + at, &word, 8);
  }
  if (at < out.size()) {
    const std::uint64_t word = random.word(index);
    std::memcpy(out.data() + at, &word, out.size() - at);
  }
}

// What a row's weights are like, in each of the three kinds of columns.
struct RowStatistics {
  double std = 0;
  double slow_std = 0;
  double constant = 0;
};

RowStatistics statistics_of(const SynthMatrix& m, std::int64_t row) {
  const double std = m.std * (m.row_gain ? m.row_gain(row) : 1.0);
  return {std, std * m.slow_gain, m.constant ? m.constant(row) : 0.0};
}

// The 16 possible stored numbers of one plane for groups of one standard deviation.
class ParameterTable {
 public:
  ParameterTable(int bits, SynthPlane::Part part)
      : factor_((part == SynthPlane::Part::Scales ? 1.0 : -code_mean(bits)) / code_std(bits)) {}

  const std::array<std::uint16_t, kScaleChoices>& of(double std) {
    if (std != std_) {
      std_ = std;
      for (int i = 0; i < kScaleChoices; ++i) {
        values_[static_cast<std::size_t>(i)] =
            std == 0 ? std::uint16_t{0}
                     : float_to_bf16(static_cast<float>(std * factor_ * scale_choice(i)));
      }
    }
    return values_;
  }

 private:
  double factor_;
  double std_ = -1;
  std::array<std::uint16_t, kScaleChoices> values_{};
};

// Calls row_part(row, first column, end column, index into out) for the elements of the range.
template <class RowPart>
void for_rows(std::int64_t first, std::int64_t count, std::int64_t per_row, RowPart row_part) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t row = (first + done) / per_row, column = (first + done) % per_row;
    const std::int64_t n = std::min(per_row - column, count - done);
    row_part(row, column, column + n, done);
    done += n;
  }
}

void fill_parameters(const SynthMatrix& m, SynthPlane::Part part, const RandomStream& random,
                     std::uint64_t offset, std::span<std::byte> out) {
  const std::int64_t groups = m.cols / kSynthGroup;
  const std::int64_t slow_end = m.slow_columns > 0 ? 1 + m.slow_columns / kSynthGroup : 0;
  ParameterTable plain(m.bits, part), slow(m.bits, part);
  std::uint64_t word = 0, word_index = ~std::uint64_t{0};
  for_rows(static_cast<std::int64_t>(offset / 2), std::ssize(out) / 2, groups,
           [&](std::int64_t row, std::int64_t begin, std::int64_t end, std::int64_t at) {
             const RowStatistics row_is = statistics_of(m, row);
             const auto& plain_values = plain.of(row_is.std);
             const auto& slow_values = slow.of(row_is.slow_std);
             for (std::int64_t group = begin; group < end; ++group, ++at) {
               const auto element = static_cast<std::uint64_t>(row * groups + group);
               if (element / 16 != word_index) {
                 word_index = element / 16;
                 word = random.word(kFirstScaleWord + word_index);
               }
               const std::size_t choice = word >> (4 * (element % 16)) & 15;
               std::uint16_t value = group < slow_end ? slow_values[choice] : plain_values[choice];
               if (group == 0 && m.constant) {
                 value = part == SynthPlane::Part::Scales
                             ? std::uint16_t{0}
                             : float_to_bf16(static_cast<float>(row_is.constant));
               }
               store16(out, at, value);
             }
           });
}

// The two powers of 2 around the wanted scale, mixed so that the mean square is right.
class ExponentTable {
 public:
  std::uint8_t of(double std, std::size_t choice) {
    if (std != std_) {
      std_ = std;
      constexpr double kCodeStd = 2.926;  // of uniform E2M1 codes
      const double exponent = std::log2(std / kCodeStd);
      lower_ = std == 0 ? 0 : static_cast<int>(std::floor(exponent)) + 127;
      const double share = (std::exp2(2 * (exponent - std::floor(exponent))) - 1) / 3;
      n_upper_ = std == 0 ? 0 : static_cast<std::size_t>(std::lround(share * kScaleChoices));
    }
    return static_cast<std::uint8_t>(lower_ + (choice < n_upper_ ? 1 : 0));
  }

 private:
  double std_ = -1;
  int lower_ = 0;
  std::size_t n_upper_ = 0;
};

// Constants cannot be had in this format: weights on the constant channels are next to zero.
void fill_exponents(const SynthMatrix& m, const RandomStream& random, std::uint64_t offset,
                    std::span<std::byte> out) {
  const std::int64_t groups = m.cols / kSynthMxGroup;
  const std::int64_t constant_end = m.constant ? kConstantChannels / kSynthMxGroup : 0;
  const std::int64_t slow_end =
      m.slow_columns > 0 ? (kConstantChannels + m.slow_columns) / kSynthMxGroup : 0;
  ExponentTable plain, slow;
  for_rows(static_cast<std::int64_t>(offset), std::ssize(out), groups,
           [&](std::int64_t row, std::int64_t begin, std::int64_t end, std::int64_t at) {
             const RowStatistics row_is = statistics_of(m, row);
             for (std::int64_t group = begin; group < end; ++group, ++at) {
               const auto element = static_cast<std::uint64_t>(row * groups + group);
               const std::size_t choice =
                   random.word(kFirstScaleWord + element / 16) >> (4 * (element % 16)) & 15;
               const std::uint8_t exponent = group < constant_end ? std::uint8_t{0}
                                             : group < slow_end   ? slow.of(row_is.slow_std, choice)
                                                                  : plain.of(row_is.std, choice);
               out[static_cast<std::size_t>(at)] = static_cast<std::byte>(exponent);
             }
           });
}

// A matrix in BF16: one random byte chooses each weight.
void fill_plain(const SynthMatrix& m, const RandomStream& random, std::uint64_t offset,
                std::span<std::byte> out) {
  const std::array<float, 256>& normal = normal_quantiles();
  const std::int64_t slow_end = m.slow_columns > 0 ? kConstantChannels + m.slow_columns : 0;
  for_rows(static_cast<std::int64_t>(offset / 2), std::ssize(out) / 2, m.cols,
           [&](std::int64_t row, std::int64_t begin, std::int64_t end, std::int64_t at) {
             const RowStatistics row_is = statistics_of(m, row);
             for (std::int64_t column = begin; column < end; ++column, ++at) {
               const auto element = static_cast<std::uint64_t>(row * m.cols + column);
               const std::size_t byte = random.word(element / 8) >> (8 * (element % 8)) & 255;
               const double std = column < slow_end ? row_is.slow_std : row_is.std;
               const bool constant = m.constant && column < kConstantChannels;
               store16(out, at,
                       float_to_bf16(constant ? static_cast<float>(row_is.constant)
                                              : static_cast<float>(std) * normal[byte]));
             }
           });
}

SynthPlane make_plane(std::string name, DType dtype, std::vector<std::int64_t> shape,
                      SynthPlane::Part part) {
  std::uint64_t bytes = dtype_size(dtype);
  for (const std::int64_t n : shape) bytes *= static_cast<std::uint64_t>(n);
  return {std::move(name), dtype, std::move(shape), bytes, part};
}

}  // namespace

std::vector<SynthPlane> planes_of(const SynthMatrix& m) {
  using Part = SynthPlane::Part;
  const std::string weight = m.module + ".weight";
  if (m.bits == 16) return {make_plane(weight, DType::BF16, {m.rows, m.cols}, Part::Plain)};
  if (m.is_mxfp4)
    return {make_plane(weight, DType::U32, {m.rows, m.cols / 8}, Part::Codes),
            make_plane(m.module + ".scales", DType::U8, {m.rows, m.cols / kSynthMxGroup},
                       Part::Exponents)};
  const std::int64_t groups = m.cols / kSynthGroup;
  return {make_plane(weight, DType::U32, {m.rows, m.cols * m.bits / 32}, Part::Codes),
          make_plane(m.module + ".scales", DType::BF16, {m.rows, groups}, Part::Scales),
          make_plane(m.module + ".biases", DType::BF16, {m.rows, groups}, Part::Biases)};
}

SynthPlane plane_of(const SynthVector& v) {
  return make_plane(v.name, v.dtype, v.shape, SynthPlane::Part::Plain);
}

void fill_plane(const SynthMatrix& matrix, const SynthPlane& plane, const RandomStream& random,
                std::uint64_t offset, std::span<std::byte> out) {
  MOEFLUX_ASSERT(offset % 8 == 0 && offset + out.size() <= plane.bytes);
  switch (plane.part) {
    case SynthPlane::Part::Codes:
      return fill_codes(random, offset, out);
    case SynthPlane::Part::Scales:
    case SynthPlane::Part::Biases:
      return fill_parameters(matrix, plane.part, random, offset, out);
    case SynthPlane::Part::Exponents:
      return fill_exponents(matrix, random, offset, out);
    case SynthPlane::Part::Plain:
      return fill_plain(matrix, random, offset, out);
  }
}

void fill_plane(const SynthVector& vector, std::uint64_t offset, std::span<std::byte> out) {
  const std::size_t size = dtype_size(vector.dtype);
  MOEFLUX_ASSERT(offset % 8 == 0 && (size == 2 || size == 4));
  auto index = static_cast<std::int64_t>(offset / size);
  for (std::size_t at = 0; at + size <= out.size(); at += size, ++index) {
    const auto value = static_cast<float>(vector.value(index));
    const std::uint32_t bits =
        size == 4 ? std::bit_cast<std::uint32_t>(value) : std::uint32_t{float_to_bf16(value)};
    std::memcpy(out.data() + at, &bits, size);
  }
}

}  // namespace moeflux
