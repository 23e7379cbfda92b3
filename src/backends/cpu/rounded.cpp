// The reference of the fast path. Plain loops; what other instruction sets must reproduce bit by
// bit.
#include "backends/cpu/rounded.h"

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

void quantize_group(const RoundedLayout& layout, std::int64_t g, const float* values,
                    std::byte* out) {
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

void quantize(const RoundedLayout& layout, const float* x, std::byte* out) noexcept {
  std::memset(out, 0, static_cast<std::size_t>(layout.row_bytes));
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    quantize_group(layout, g, x + g * layout.group, out);
  }
}

// Code i of row r of a tile.
int weight_code(const std::byte* codes, int bits, std::int64_t r, std::int64_t i) {
  const std::int64_t bit = i * bits;
  const auto dword = [&](std::int64_t index) {
    std::uint32_t value;
    std::memcpy(&value, codes + (index * kTileRows + r) * 4, sizeof value);
    return std::uint64_t{value};
  };
  std::uint64_t two = dword(bit / 32);
  if (bit % 32 + bits > 32) two |= dword(bit / 32 + 1) << 32;
  return static_cast<int>(two >> (bit % 32) & ((1u << bits) - 1));
}

float dot(const RoundedLayout& layout, const WeightFormat& format, const RoundedTile& tile,
          std::int64_t r, const std::byte* x) {
  const auto* high = part<std::int8_t>(x, 0);
  const auto* low = part<std::int8_t>(x, layout.low_at);
  const auto scale_bytes = static_cast<std::int64_t>(dtype_size(format.scale_dtype));
  const auto number = [&](const std::byte* plane, std::int64_t g) {
    float value = 0;
    decode_floats(format.scale_dtype, plane + (g * kTileRows + r) * scale_bytes, 1, &value);
    return value;
  };
  float acc = 0;
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    int sum = 0;
    for (std::int64_t i = g * layout.group; i < (g + 1) * layout.group; ++i) {
      const std::int64_t place = layout.place(i);
      const int code = layout.digits == 1 ? high[place] : 256 * high[place] + low[place];
      sum += weight_code(tile.codes, format.bits, r, i) * code;
    }
    const float scale = number(tile.scales, g) * part<float>(x, layout.scales_at)[g];
    acc = std::fma(static_cast<float>(sum), scale, acc);
    acc = std::fma(number(tile.biases, g), part<float>(x, layout.sums_at)[g], acc);
  }
  return acc;
}

void matmul(const RoundedMatmul& op) noexcept {
  for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kTileRows) {
    const RoundedTile tile = rounded_tile(op, row);
    for (std::int64_t r = 0; r < tile.n_rows; ++r) {
      for (std::int64_t i = 0; i < op.n; ++i) {
        const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i] : i;
        op.y[target * op.y_stride + row - op.row + r] =
            dot(*op.layout, op.weight->format, tile, r, op.x + i * op.layout->row_bytes);
      }
    }
  }
}

// A plane of a short tile, [n][n_rows] elements, as [n][16].
const std::byte* widened(const std::byte* plane, std::int64_t n, std::int64_t n_rows,
                         std::int64_t size, std::byte*& memory) noexcept {
  std::byte* const out = memory;
  const std::int64_t wide = kTileRows * size, narrow = n_rows * size;
  for (std::int64_t k = 0; k < n; ++k) {
    std::memcpy(out + k * wide, plane + k * narrow, static_cast<std::size_t>(narrow));
    std::memset(out + k * wide + narrow, 0, static_cast<std::size_t>(wide - narrow));
  }
  memory += n * wide;
  return out;
}

// Of the parts of a call's scratch.
std::int64_t plane_floats(const RoundedLayout& layout) {
  return kTileRows * round_up(layout.n_groups, kFloatsUnit);
}
std::int64_t code_floats(const RoundedLayout& layout) {
  return kTileRows * layout.padded / 4;
}

}  // namespace

RoundedLayout::RoundedLayout(const WeightFormat& format, std::int64_t n_cols, int n_digits)
    : digits(n_digits),
      steps(format.bits == 2 || format.bits == 4 ? 8 / format.bits : 1),
      group(format.group),
      cols(n_cols),
      n_groups(n_cols / format.group),
      padded(round_up(n_cols, 64)),
      low_at(n_digits == 2 ? padded : 0),
      scales_at(n_digits * padded),
      sums_at(scales_at + round_up(n_groups, kFloatsUnit) * std::int64_t{sizeof(float)}),
      row_bytes(2 * sums_at - scales_at) {}

bool has_rounded(const WeightFormat& format) {
  return format.kind == WeightKind::Affine && format.is_interleaved;
}

// Twice: for a tile as it is used, and for a short one as it is read.
std::int64_t rounded_scratch_floats(const RoundedLayout& layout) {
  return 2 * (2 * plane_floats(layout) + code_floats(layout)) + kFloatsUnit;
}

RoundedScratch rounded_scratch(const RoundedMatmul& op) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(op.scratch) / sizeof(float);
  float* scales = op.scratch + (kFloatsUnit - address % kFloatsUnit) % kFloatsUnit;
  float* biases = scales + plane_floats(*op.layout);
  return {scales, biases,
          static_cast<std::byte*>(static_cast<void*>(biases + plane_floats(*op.layout)))};
}

RoundedTile rounded_tile(const RoundedMatmul& op, std::int64_t row) noexcept {
  const WeightView& w = *op.weight;
  const std::int64_t row_bytes = data_row_bytes(w.format, w.cols);
  const auto size = static_cast<std::int64_t>(dtype_size(w.format.scale_dtype));
  const std::int64_t n_groups = op.layout->n_groups;
  RoundedTile tile{w.data + row * row_bytes, w.scales + row * n_groups * size,
                   w.biases + row * n_groups * size,
                   w.rows - row < kTileRows ? w.rows - row : kTileRows};
  if (tile.n_rows == kTileRows) return tile;
  std::byte* memory =
      rounded_scratch(op).codes + code_floats(*op.layout) * std::int64_t{sizeof(float)};
  tile.codes = widened(tile.codes, row_bytes / 4, tile.n_rows, 4, memory);
  tile.scales = widened(tile.scales, n_groups, tile.n_rows, size, memory);
  tile.biases = widened(tile.biases, n_groups, tile.n_rows, size, memory);
  return tile;
}

const RoundedKernels& rounded_scalar() {
  static constexpr RoundedKernels kKernels{.quantize = quantize, .matmul = matmul};
  return kKernels;
}

}  // namespace moeflux::cpu
