// The reference of the fast path. Plain loops; what other instruction sets must reproduce bit by
// bit.
#include "backends/cpu/rounded.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "backends/cpu/rounded_blocks.h"
#include "base/cpu_features.h"
#include "quant/block_codec.h"
#include "quant/block_tile.h"
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
  if (layout.sums == RoundedSums::Scaled)
    part<float>(out, layout.sums_at)[g] = scale * static_cast<float>(sum);
}

void quantize(const RoundedLayout& layout, const float* x, std::byte* out) noexcept {
  std::memset(out, 0, static_cast<std::size_t>(layout.row_bytes));
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    float buffer[RoundedLayout::kMaxGroup];
    quantize_group(layout, g, rounded_values(layout, x, g, buffer), out);
  }
  rounded_sums(layout, out);
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

// Rows of a tile and of activations.
struct Operands {
  const RoundedLayout& layout;
  const WeightFormat& format;
  const RoundedTile& tile;
  std::int64_t r;
  const std::byte* x;

  // Of a group of the weight.
  int sum_of_products(std::int64_t g) const {
    constexpr int kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const auto* high = part<std::int8_t>(x, 0);
    const auto* low = part<std::int8_t>(x, layout.low_at);
    const bool is_fp4 = format.kind == WeightKind::Fp4;
    int sum = 0;
    for (std::int64_t i = g * layout.weight_group; i < (g + 1) * layout.weight_group; ++i) {
      const std::int64_t place = layout.place(i);
      const int code = layout.digits == 1 ? high[place] : 256 * high[place] + low[place];
      const int w = weight_code(tile.codes, is_fp4 ? 4 : format.bits, r, i);
      sum += (is_fp4 ? kDoubled[w] : w - layout.centered) * code;
    }
    return sum;
  }
  float number(const std::byte* plane, std::int64_t g) const {
    const auto size = static_cast<std::int64_t>(dtype_size(format.scale_dtype));
    float value = 0;
    decode_floats(format.scale_dtype, plane + (g * kTileRows + r) * size, 1, &value);
    return format.scale_dtype == DType::F8E4M3 ? value / 256 : value;
  }
  float bias(std::int64_t g) const {
    if (format.zero == AffineZero::Bias) return number(tile.biases, g);
    const int zero = format.zero == AffineZero::MidCode
                         ? 1 << (format.bits - 1)
                         : std::to_integer<int>(tile.biases[g * kTileRows + r]);
    return number(tile.scales, g) * static_cast<float>(-zero);
  }
};

float affine_dot(const Operands& in) {
  const auto* scales = part<float>(in.x, in.layout.scales_at);
  const auto* sums = part<float>(in.x, in.layout.sums_at);
  float acc = 0;
  for (std::int64_t g = 0; g < in.layout.n_groups; ++g) {
    acc = std::fma(static_cast<float>(in.sum_of_products(g)),
                   in.number(in.tile.scales, g) * scales[g], acc);
    acc = std::fma(in.bias(g), sums[g], acc);
  }
  return acc;
}

float centered_dot(const Operands& in) {
  const RoundedLayout& layout = in.layout;
  const std::int64_t per_group = layout.group / layout.weight_group;
  float acc = 0;
  for (std::int64_t group = 0; group < layout.n_groups; ++group) {
    const std::int64_t first = group * per_group;
    float sum = 0;
    for (std::int64_t g = first; g < std::min(first + per_group, layout.n_weight_groups); ++g) {
      sum = std::fma(static_cast<float>(in.sum_of_products(g)), in.number(in.tile.scales, g), sum);
    }
    acc = std::fma(sum, part<float>(in.x, layout.scales_at)[group], acc);
  }
  return acc;
}

void matmul(const RoundedMatmul& op) noexcept {
  if (op.weight->format.kind == WeightKind::Block) return rounded_blocks_scalar(op);
  const bool centered = op.layout->centered != 0;
  const float factor = centered ? rounded_factor(*op.weight) : 1;
  for (std::int64_t row = op.row; row < op.row + op.n_rows; row += kTileRows) {
    const RoundedTile tile = rounded_tile(op, row);
    for (std::int64_t r = 0; r < tile.n_rows; ++r) {
      for (std::int64_t i = 0; i < op.n; ++i) {
        const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i] : i;
        const Operands in{*op.layout, op.weight->format, tile, r, op.x + i * op.layout->row_bytes};
        op.y[target * op.y_stride + row - op.row + r] =
            centered ? centered_dot(in) * factor : affine_dot(in);
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

// The sum of 16 signed bytes, which are made unsigned first.
int sum_of_16(const std::byte* digits) {
#if defined(__SSE2__)
  const __m128i signs = _mm_set1_epi8(-128);
  __m128i bytes;
  std::memcpy(&bytes, digits, sizeof bytes);
  const __m128i halves = _mm_sad_epu8(_mm_xor_si128(bytes, signs), _mm_setzero_si128());
  return _mm_cvtsi128_si32(_mm_add_epi32(halves, _mm_unpackhi_epi64(halves, halves))) - 16 * 128;
#else
  // Added in pairs, and those by a multiplication.
  constexpr std::uint64_t kEven = 0x00FF00FF00FF00FFu;
  std::uint64_t pairs = 0;
  for (int i = 0; i < 16; i += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, digits + i, sizeof eight);
    eight ^= 0x8080808080808080u;
    pairs += (eight & kEven) + (eight >> 8 & kEven);
  }
  return static_cast<int>(pairs * 0x0001000100010001u >> 48) - 16 * 128;
#endif
}

// Of the parts of a call's scratch.
std::int64_t plane_floats(const RoundedLayout& layout) {
  return kTileRows * round_up(layout.n_weight_groups, kFloatsUnit);
}
std::int64_t code_floats(const RoundedLayout& layout) {
  return kTileRows * layout.padded / 4;
}

}  // namespace

RoundedLayout::RoundedLayout(const WeightFormat& format, std::int64_t n_cols, int n_digits)
    : digits(n_digits), weight_group(format.group), cols(n_cols) {
  constexpr int kLeastGroup = 64;  // of centered weights
  const int bits = format.kind == WeightKind::Fp4 ? 4 : format.bits;
  const bool in_blocks = format.kind == WeightKind::Block;
  if (in_blocks) {
    const BlockGroups groups = block_groups(format.blocks);
    weight_group = groups.values;
    sums = groups.has_biases ? RoundedSums::Plain : RoundedSums::Starts;
    centered = groups.has_biases ? 0 : block_tiling(format.blocks).middle;
  } else if (format.kind == WeightKind::Fp4) {
    centered = 12;
  } else if (format.zero == AffineZero::MidCode && bits == 4) {
    centered = 8;
  }
  steps = !in_blocks && (bits == 2 || bits == 4) ? 8 / bits : 1;
  if (!in_blocks && centered != 0) sums = RoundedSums::Starts;
  group = sums == RoundedSums::Scaled ? weight_group : std::max(kLeastGroup, weight_group);
  n_groups = (cols + group - 1) / group;
  n_weight_groups = cols / weight_group;
  padded = round_up(cols, 64);
  low_at = digits == 2 ? padded : 0;
  scales_at = digits * padded;
  constexpr std::int64_t kBytes = sizeof(float);
  sums_at = scales_at + round_up(n_groups, kFloatsUnit) * kBytes;
  const std::int64_t n_sums = sums == RoundedSums::Scaled ? n_groups : n_weight_groups;
  row_bytes = sums_at + round_up(n_sums, kFloatsUnit) * kBytes;
}

bool has_rounded(const WeightFormat& format) {
  return format.is_interleaved;
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
  const auto scale_size = static_cast<std::int64_t>(dtype_size(w.format.scale_dtype));
  const auto bias_size = static_cast<std::int64_t>(bias_element_bytes(w.format));
  const std::int64_t n_groups = op.layout->n_weight_groups;
  RoundedTile tile{w.data + row * row_bytes, w.scales + row * n_groups * scale_size,
                   bias_size > 0 ? w.biases + row * n_groups * bias_size : nullptr,
                   w.rows - row < kTileRows ? w.rows - row : kTileRows};
  if (tile.n_rows == kTileRows) return tile;
  std::byte* memory =
      rounded_scratch(op).codes + code_floats(*op.layout) * std::int64_t{sizeof(float)};
  tile.codes = widened(tile.codes, row_bytes / 4, tile.n_rows, 4, memory);
  tile.scales = widened(tile.scales, n_groups, tile.n_rows, scale_size, memory);
  if (bias_size > 0) tile.biases = widened(tile.biases, n_groups, tile.n_rows, bias_size, memory);
  return tile;
}

BlockTile rounded_block_tile(const RoundedMatmul& op, std::int64_t row) noexcept {
  const WeightView& w = *op.weight;
  const BlockType type = w.format.blocks;
  const std::byte* tile = w.data + row * data_row_bytes(w.format, w.cols);
  const std::int64_t n_rows = std::min(w.rows - row, kTileRows);
  const BlockTiling tiling = block_tiling(type);
  if (!tiling.has_planes) return {nullptr, nullptr, tile, n_rows};
  const TilePlanes planes = tile_planes(type, n_rows, w.cols);
  BlockTile result{tile + planes.halves, tile + planes.bytes, tile + planes.codes, n_rows};
  if (n_rows == kTileRows) return result;
  const std::int64_t n_blocks = w.cols / block_shape(type).values;
  std::byte* memory =
      rounded_scratch(op).codes + code_floats(*op.layout) * std::int64_t{sizeof(float)};
  result.halves = widened(result.halves, n_blocks * tiling.halves, n_rows, 2, memory);
  result.bytes = widened(result.bytes, n_blocks * tiling.bytes, n_rows, 1, memory);
  result.codes = widened(result.codes, w.cols * tiling.bits() / 32, n_rows, 4, memory);
  return result;
}

float rounded_factor(const WeightView& weight) noexcept {
  const WeightFormat& format = weight.format;
  if (format.kind != WeightKind::Fp4) return 1;
  const float half = format.scale_dtype == DType::F8E4M3 ? 128.0f : 0.5f;
  if (!format.has_tensor_scale) return half;
  float scale = 1;
  decode_floats(DType::F32, weight.biases, 1, &scale);
  return format.tensor_scale_divides ? half / scale : half * scale;
}

const float* rounded_values(const RoundedLayout& layout, const float* x, std::int64_t g,
                            float (&buffer)[RoundedLayout::kMaxGroup]) noexcept {
  const float* values = x + g * layout.group;
  const std::int64_t n = layout.cols - g * layout.group;
  if (n >= layout.group) return values;
  std::fill(std::copy_n(values, n, buffer), buffer + layout.group, 0.0f);
  return buffer;
}

void rounded_sums(const RoundedLayout& layout, std::byte* out) noexcept {
  if (layout.sums == RoundedSums::Scaled) return;
  const std::byte* low = layout.digits == 2 ? out + layout.low_at : nullptr;
  for (std::int64_t g = 0; g < layout.n_weight_groups; ++g) {
    int sum = 0;
    for (std::int64_t i = 0; i < layout.weight_group; i += 16) {
      const std::int64_t at = g * layout.weight_group + i;
      const int high_sum = sum_of_16(out + at);
      sum += low == nullptr ? high_sum : 256 * high_sum + sum_of_16(low + at);
    }
    if (layout.sums == RoundedSums::Starts) {
      part<std::int32_t>(out, layout.sums_at)[g] = -layout.centered * sum;
    } else {
      part<float>(out, layout.sums_at)[g] = static_cast<float>(sum);
    }
  }
}

#if defined(__x86_64__)
bool rounded_may_permute() noexcept {
  return cpu_features().avx512_vbmi;
}
#endif

const RoundedKernels& rounded_scalar() {
  static constexpr RoundedKernels kKernels{.quantize = quantize, .matmul = matmul};
  return kKernels;
}

}  // namespace moeflux::cpu
