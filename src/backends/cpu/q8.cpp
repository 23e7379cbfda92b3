// The reference of the fast path. Plain loops; what other instruction sets must reproduce bit by
// bit.
#include "backends/cpu/q8.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/codec.h"

namespace moeflux::cpu {
namespace {

constexpr std::int64_t kFloatsUnit = 16;  // scales and sums are padded to a multiple of this

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

void quantize_group(const Q8Layout& layout, std::int64_t g, const float* values, std::byte* out) {
  float largest = 0;
  bool finite = true;
  for (int i = 0; i < layout.group; ++i) {
    finite = finite && std::isfinite(values[i]);
    largest = std::max(largest, std::abs(values[i]));
  }
  const float limit = layout.largest_code();
  const float scale = finite ? largest / limit : std::numeric_limits<float>::quiet_NaN();
  const float inverse = finite && largest > 0 ? limit / largest : 0.0f;
  int sum = 0;
  for (int i = 0; i < layout.group; ++i) {
    // The inverse of a very small largest value is infinite: products are cut off like any other,
    // but for that of zero.
    const float scaled =
        finite && values[i] != 0 ? std::clamp(values[i] * inverse, -limit, limit) : 0.0f;
    const int code = static_cast<int>(std::nearbyint(scaled));
    sum += code;
    const std::int64_t place = layout.place(g * layout.group + i);
    if (layout.digits == 1) {
      part<std::int8_t>(out, 0)[place] = static_cast<std::int8_t>(code);
    } else {
      const int high = (code + 128) >> 8;
      part<std::int8_t>(out, 0)[place] = static_cast<std::int8_t>(high);
      part<std::int8_t>(out, layout.low_at)[place] = static_cast<std::int8_t>(code - 256 * high);
    }
  }
  part<float>(out, layout.scales_at)[g] = scale;
  part<float>(out, layout.sums_at)[g] = scale * static_cast<float>(sum);
}

void quantize(const Q8Layout& layout, const float* x, std::byte* out) noexcept {
  std::memset(out, 0, static_cast<std::size_t>(layout.row_bytes));
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    quantize_group(layout, g, x + g * layout.group, out);
  }
}

int weight_code(const std::byte* row, int bits, std::int64_t i) {
  const std::int64_t bit = i * bits;
  unsigned two = std::to_integer<unsigned>(row[bit / 8]);
  if (bit % 8 + bits > 8) two |= std::to_integer<unsigned>(row[bit / 8 + 1]) << 8;
  return static_cast<int>(two >> (bit % 8) & ((1u << bits) - 1));
}

float dot(const Q8Layout& layout, const WeightView& w, std::int64_t row, const std::byte* x) {
  const auto* high = part<std::int8_t>(x, 0);
  const auto* low = part<std::int8_t>(x, layout.low_at);
  const int bits = w.format.bits;
  const std::byte* data = w.data + row * (layout.cols * bits / 8);
  const auto scale_bytes = static_cast<std::int64_t>(dtype_size(w.format.scale_dtype));
  const auto number = [&](const std::byte* plane, std::int64_t g) {
    float value = 0;
    decode_floats(w.format.scale_dtype, plane + (row * layout.n_groups + g) * scale_bytes, 1,
                  &value);
    return value;
  };
  float acc = 0;
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    int sum = 0;
    for (std::int64_t i = g * layout.group; i < (g + 1) * layout.group; ++i) {
      const std::int64_t place = layout.place(i);
      const int code = layout.digits == 1 ? high[place] : 256 * high[place] + low[place];
      sum += weight_code(data, bits, i) * code;
    }
    const float scale = number(w.scales, g) * part<float>(x, layout.scales_at)[g];
    acc = std::fma(static_cast<float>(sum), scale, acc);
    acc = std::fma(number(w.biases, g), part<float>(x, layout.sums_at)[g], acc);
  }
  return acc;
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

Q8Layout::Q8Layout(const WeightFormat& format, std::int64_t n_cols, int n_digits, std::int64_t n)
    : form(n < kTilesFrom ? Q8Form::Blocks : Q8Form::Tiles),
      digits(n_digits),
      bits(form == Q8Form::Blocks && (format.bits == 2 || format.bits == 4) ? format.bits : 8),
      steps(8 / bits),
      group(format.group),
      cols(n_cols),
      n_groups(n_cols / format.group),
      n_blocks((n_cols + block_codes() - 1) / block_codes()),
      padded(n_blocks * block_codes()),
      low_at(n_digits == 2 ? padded : 0),
      scales_at(n_digits * padded),
      sums_at(scales_at + round_up(n_groups, kFloatsUnit) * std::int64_t{sizeof(float)}),
      row_bytes(2 * sums_at - scales_at) {}

bool has_q8(const WeightFormat& format) {
  return format.kind == WeightKind::Affine;
}

std::int64_t q8_scratch_floats(const Q8Layout& layout) {
  // Scales and biases of some rows as floats, their codes spread to bytes, and room to align.
  return kQ8Rows * (2 * round_up(layout.n_groups, kFloatsUnit) + layout.padded / 4) + kFloatsUnit;
}

const Q8Kernels& q8_scalar() {
  static constexpr Q8Kernels kKernels{.quantize = quantize, .matmul = matmul};
  return kKernels;
}

}  // namespace moeflux::cpu
