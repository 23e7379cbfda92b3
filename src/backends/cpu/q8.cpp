// The reference of the fast path. Plain loops; what other instruction sets must reproduce bit by
// bit.
#include "backends/cpu/q8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/codec.h"

namespace moeflux::cpu {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

template <class T>
T* part(std::byte* row, std::int64_t offset) {
  return static_cast<T*>(static_cast<void*>(row + offset));
}
template <class T>
const T* part(const std::byte* row, std::int64_t offset) {
  return static_cast<const T*>(static_cast<const void*>(row + offset));
}

// Where the code of element i of a row is.
std::int64_t place(const Q8Layout& layout, std::int64_t i) {
  const std::int64_t block = i / layout.block_codes(), within = i % layout.block_codes();
  return block * layout.block_codes() + within % layout.steps * Q8Layout::kBlockBytes +
         within / layout.steps;
}

// Group g of a row. `rest`, when not null, receives what rounding leaves over.
void quantize_group(const Q8Layout& layout, std::int64_t g, const float* values, std::byte* out,
                    float* rest) {
  float largest = 0;
  bool finite = true;
  for (int i = 0; i < layout.group; ++i) {
    finite = finite && std::isfinite(values[i]);
    largest = std::max(largest, std::abs(values[i]));
  }
  // What is not finite makes every product of its group NaN, as it would with floats.
  const float scale = finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
  const float inverse = finite && largest > 0 ? 127.0f / largest : 0.0f;
  int sum = 0;
  for (int i = 0; i < layout.group; ++i) {
    // A product that overflows (largest is subnormal) is cut off like any other.
    const float scaled = finite ? std::clamp(values[i] * inverse, -127.0f, 127.0f) : 0.0f;
    const float code = std::nearbyint(scaled);
    part<std::int8_t>(out, 0)[place(layout, g * layout.group + i)] = static_cast<std::int8_t>(code);
    sum += static_cast<int>(code);
    if (rest != nullptr) rest[i] = std::fma(-code, scale, values[i]);
  }
  part<float>(out, layout.scales_at)[g] = scale;
  part<float>(out, layout.sums_at)[g] = scale * static_cast<float>(sum);
}

void quantize(const Q8Layout& layout, const float* x, std::byte* out, std::byte* rest) noexcept {
  std::memset(out, 0, static_cast<std::size_t>(layout.row_bytes));
  if (rest != nullptr) std::memset(rest, 0, static_cast<std::size_t>(layout.row_bytes));
  std::array<float, Q8Layout::kMaxGroup> left;
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    quantize_group(layout, g, x + g * layout.group, out, left.data());
    if (rest != nullptr) quantize_group(layout, g, left.data(), rest, nullptr);
  }
}

float sum_lanes(std::array<float, Q8Layout::kLanes> lanes) {
  for (std::size_t width = Q8Layout::kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

float dot(const Q8Layout& layout, const WeightView& w, std::int64_t row, const std::byte* x) {
  const auto* codes = part<std::int8_t>(x, 0);
  const auto* x_scales = part<float>(x, layout.scales_at);
  const auto* x_sums = part<float>(x, layout.sums_at);
  const int bits = w.format.bits;
  const std::byte* data = w.data + row * (layout.cols * bits / 8);
  const auto scale_bytes = static_cast<std::int64_t>(dtype_size(w.format.scale_dtype));
  const auto number = [&](const std::byte* plane, std::int64_t g) {
    float value = 0;
    decode_floats(w.format.scale_dtype, plane + (row * layout.n_groups + g) * scale_bytes, 1,
                  &value);
    return value;
  };
  const auto weight_code = [&](std::int64_t i) {
    const std::int64_t bit = i * bits;
    unsigned two = std::to_integer<unsigned>(data[bit / 8]);
    if (bit % 8 + bits > 8) two |= std::to_integer<unsigned>(data[bit / 8 + 1]) << 8;
    return static_cast<int>(two >> (bit % 8) & ((1u << bits) - 1));
  };

  std::array<float, Q8Layout::kLanes> lanes{};
  for (std::int64_t i = 0; i < layout.cols; i += layout.lane_codes()) {
    int sum = 0;
    for (std::int64_t k = i; k < i + layout.lane_codes(); ++k) {
      sum += weight_code(k) * codes[place(layout, k)];
    }
    const std::int64_t g = i / layout.group;
    float& acc = lanes[static_cast<std::size_t>(i / layout.lane_codes() % Q8Layout::kLanes)];
    acc = std::fma(static_cast<float>(sum), number(w.scales, g) * x_scales[g], acc);
  }
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    float& acc = lanes[static_cast<std::size_t>(g % Q8Layout::kLanes)];
    acc = std::fma(number(w.biases, g), x_sums[g], acc);
  }
  return sum_lanes(lanes);
}

void matmul(const Q8Matmul& op) noexcept {
  for (std::int64_t r = 0; r < op.n_rows; ++r) {
    for (std::int64_t i = 0; i < op.n; ++i) {
      const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i] : i;
      op.y[target * op.y_stride + r] =
          dot(*op.layout, *op.weight, op.row + r, op.x + i * op.layout->row_bytes);
    }
  }
}

}  // namespace

Q8Layout::Q8Layout(const WeightFormat& format, std::int64_t n_cols)
    : bits(format.bits == 2 || format.bits == 4 ? format.bits : 8),
      steps(8 / bits),
      group(format.group),
      cols(n_cols),
      n_groups(n_cols / format.group),
      n_blocks((n_cols + block_codes() - 1) / block_codes()),
      scales_at(n_blocks * block_codes()),
      sums_at(scales_at + round_up(n_groups, kLanes) * static_cast<std::int64_t>(sizeof(float))),
      row_bytes(2 * sums_at - scales_at) {}

bool has_q8(const WeightFormat& format) {
  return format.kind == WeightKind::Affine;
}

std::int64_t q8_scratch_floats(const Q8Layout& layout) {
  // Scales and biases of a few rows as floats, their codes spread to bytes, and room to align.
  constexpr std::int64_t kRows = 4;
  return kRows * (2 * round_up(layout.n_groups, Q8Layout::kLanes) +
                  layout.n_blocks * layout.block_codes() / 4) +
         Q8Layout::kLanes;
}

const Q8Kernels& q8_scalar() {
  static constexpr Q8Kernels kKernels{.quantize = quantize, .matmul = matmul};
  return kKernels;
}

}  // namespace moeflux::cpu
