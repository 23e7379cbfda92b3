#include "backends/random_weight.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "quant/block_codec.h"
#include "quant/interleave.h"

namespace moeflux::test {
namespace {

void append(std::vector<std::byte>& out, std::uint64_t bits, int n_bytes) {
  for (int i = 0; i < n_bytes; ++i) out.push_back(static_cast<std::byte>(bits >> (8 * i)));
}

// Appends a random number of about the given size in a float format, and returns its value.
double append_number(std::vector<std::byte>& out, Random& random, DType dtype, double scale) {
  if (dtype == DType::F16) {
    const auto sign = static_cast<std::uint32_t>(random.integer(0, 1));
    const auto mantissa = static_cast<std::uint32_t>(random.integer(0, 1023));
    // Exponents below that of `scale`, now and then a subnormal.
    const int top = 15 + static_cast<int>(std::floor(std::log2(scale))) - 1;
    const auto exponent =
        random.chance(0.05) ? 0
                            : static_cast<std::uint32_t>(random.integer(std::max(1, top - 4), top));
    append(out, (sign << 15) | (exponent << 10) | mantissa, 2);
    const double magnitude =
        exponent == 0 ? mantissa * std::pow(2.0, -24)
                      : (1 + mantissa / 1024.0) * std::pow(2.0, static_cast<int>(exponent) - 15);
    return sign != 0 ? -magnitude : magnitude;
  }
  auto bits = std::bit_cast<std::uint32_t>(random.between(-scale, scale));
  if (dtype == DType::BF16) {
    bits &= 0xFFFF0000u;
    append(out, bits >> 16, 2);
  } else {
    append(out, bits, 4);
  }
  return std::bit_cast<float>(bits);
}

double f8_value(unsigned byte) {
  const int exponent = static_cast<int>(byte >> 3) & 15;
  const unsigned mantissa = byte & 7;
  const double magnitude = exponent == 0 ? mantissa * std::pow(2.0, -9)
                                         : (1 + mantissa / 8.0) * std::pow(2.0, exponent - 7);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace

RandomWeight::RandomWeight(Random& random, const WeightFormat& format, std::int64_t rows,
                           std::int64_t cols)
    : format_(arranged(format, false)), rows_(rows), cols_(cols) {
  values_.reserve(static_cast<std::size_t>(rows * cols));
  if (format.kind == WeightKind::Affine) {
    fill_affine(random);
  } else if (format.kind == WeightKind::Fp4) {
    fill_fp4(random);
  } else if (format.kind == WeightKind::Fp8Block) {
    fill_fp8(random);
  } else if (format.kind == WeightKind::Block) {
    fill_blocks(random);
  } else {
    fill_plain(random);
  }
  if (arranged(format, true).is_interleaved) interleave();
}

void RandomWeight::fill_plain(Random& random) {
  const DType dtype = format_.kind == WeightKind::F32   ? DType::F32
                      : format_.kind == WeightKind::F16 ? DType::F16
                                                        : DType::BF16;
  for (std::int64_t i = 0; i < rows_ * cols_; ++i)
    values_.push_back(append_number(in_rows_.data, random, dtype, 0.5));
}

void RandomWeight::fill_affine(Random& random) {
  for (std::int64_t r = 0; r < rows_; ++r) {
    std::vector<bool> stream;
    for (std::int64_t g = 0; g < cols_ / format_.group; ++g) {
      const double scale =
          append_number(in_rows_.scales, random, format_.scale_dtype, 0.25 / (1 << format_.bits));
      double bias = -scale * (1 << (format_.bits - 1));
      if (format_.zero == AffineZero::Bias)
        bias = append_number(in_rows_.biases, random, format_.scale_dtype, 0.25);
      if (format_.zero == AffineZero::ZeroPoint) {
        const auto zero = static_cast<unsigned>(random.integer(0, 1 << format_.bits)) & 0xFF;
        append(in_rows_.biases, zero, 1);
        bias = -scale * zero;
      }
      for (int i = 0; i < format_.group; ++i) {
        const auto code = static_cast<unsigned>(random.integer(0, (1 << format_.bits) - 1));
        for (int bit = 0; bit < format_.bits; ++bit) stream.push_back(((code >> bit) & 1u) != 0);
        values_.push_back(scale * code + bias);
      }
    }
    for (std::size_t at = 0; at < stream.size(); at += 8) {
      unsigned byte = 0;
      for (unsigned bit = 0; bit < 8; ++bit) byte |= (stream[at + bit] ? 1u : 0u) << bit;
      in_rows_.data.push_back(static_cast<std::byte>(byte));
    }
  }
}

void RandomWeight::fill_fp4(Random& random) {
  constexpr double kSizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  double tensor_scale = 1;
  if (format_.has_tensor_scale) {
    const auto stored = format_.tensor_scale_divides
                            ? static_cast<float>(random.between(1000, 3000))
                            : static_cast<float>(random.between(1e-4, 1e-3));
    append(in_rows_.biases, std::bit_cast<std::uint32_t>(stored), 4);
    tensor_scale = format_.tensor_scale_divides ? 1.0 / stored : stored;
  }
  unsigned byte = 0;
  double scale = 0;
  for (std::int64_t i = 0; i < rows_ * cols_; ++i) {
    if (i % format_.group == 0) {
      const bool is_e8m0 = format_.scale_dtype == DType::U8;
      const bool is_rare = random.chance(0.05);  // 2^-127; of E4M3 a subnormal number
      const auto bits = is_e8m0   ? (is_rare ? 0 : static_cast<unsigned>(random.integer(116, 123)))
                        : is_rare ? static_cast<unsigned>(random.integer(0, 7))
                                  : static_cast<unsigned>(random.integer(0x20, 0x7E)) |
                                        (random.chance(0.1) ? 0x80u : 0u);
      append(in_rows_.scales, bits, 1);
      scale = is_e8m0 ? std::pow(2.0, static_cast<int>(bits) - 127) : f8_value(bits);
    }
    const auto code = static_cast<unsigned>(random.integer(0, 15));
    const double size = kSizes[code & 7] * scale * tensor_scale;
    values_.push_back(code >= 8 ? -size : size);
    byte = i % 2 == 0 ? code : byte | code << 4;
    if (i % 2 == 1) append(in_rows_.data, byte, 1);
  }
}

// A slice out of a taller matrix: its first block begins block_row0 rows earlier.
void RandomWeight::fill_fp8(Random& random) {
  block_row0_ = random.integer(0, format_.block - 1);
  const std::int64_t blocks_high = (block_row0_ + rows_ + format_.block - 1) / format_.block;
  const std::int64_t blocks_wide = (cols_ + format_.block - 1) / format_.block;
  std::vector<double> scales;
  for (std::int64_t i = 0; i < blocks_high * blocks_wide; ++i) {
    scales.push_back(append_number(in_rows_.scales, random, format_.scale_dtype, 0.01));
  }
  for (std::int64_t r = 0; r < rows_; ++r) {
    for (std::int64_t c = 0; c < cols_; ++c) {
      unsigned byte = 0x7F;
      while ((byte & 0x7F) == 0x7F)
        byte = static_cast<unsigned>(random.integer(0, 255));  // 0x7F, 0xFF are NaN
      in_rows_.data.push_back(static_cast<std::byte>(byte));
      values_.push_back(
          f8_value(byte) *
          scales[((block_row0_ + r) / format_.block) * blocks_wide + c / format_.block]);
    }
  }
}

namespace {

// Where blocks have half floats.
std::vector<std::size_t> halves_of(BlockType type) {
  switch (type) {
    case BlockType::Q2_K:
      return {80, 82};
    case BlockType::Q3_K:
      return {108};
    case BlockType::Q6_K:
      return {208};
    case BlockType::TQ1_0:
      return {52};
    case BlockType::TQ2_0:
      return {64};
    case BlockType::Q4_1:
    case BlockType::Q5_1:
    case BlockType::Q4_K:
    case BlockType::Q5_K:
      return {0, 2};
    case BlockType::IQ1_M:
    case BlockType::MXFP4:
    case BlockType::NVFP4:
      return {};
    default:
      return {0};
  }
}

}  // namespace

void set_block_scales(Random& random, BlockType type, std::byte* block) {
  std::vector<std::byte> half;
  for (const std::size_t at : halves_of(type)) {
    half.clear();
    append_number(half, random, DType::F16, 0.002);
    std::copy(half.begin(), half.end(), block + at);
  }
  if (type == BlockType::IQ1_M) {
    append_number(half, random, DType::F16, 0.02);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::byte nibble = half[i / 2] >> 4 * (i % 2) & std::byte{15};
      block[49 + 2 * i] = (block[49 + 2 * i] & std::byte{15}) | nibble << 4;
    }
  }
  if (type == BlockType::MXFP4)
    *block = static_cast<std::byte>(random.chance(0.1) ? random.integer(0, 2)
                                                       : random.integer(116, 123));
  if (type == BlockType::NVFP4) {
    for (int i = 0; i < 4; ++i)
      block[i] = static_cast<std::byte>(random.chance(0.1) ? random.integer(0, 255)
                                                           : random.integer(0x10, 0x40));
  }
}

void RandomWeight::fill_blocks(Random& random) {
  const BlockShape shape = block_shape(format_.blocks);
  const std::int64_t n_blocks = rows_ * cols_ / shape.values;
  in_rows_.data.resize(static_cast<std::size_t>(1 + n_blocks * shape.bytes));
  std::vector<float> values(static_cast<std::size_t>(shape.values));
  for (std::int64_t b = 0; b < n_blocks; ++b) {
    std::byte* block = in_rows_.data.data() + 1 + b * shape.bytes;
    for (std::int64_t i = 0; i < shape.bytes; ++i)
      block[i] = static_cast<std::byte>(random.integer(0, 255));
    set_block_scales(random, format_.blocks, block);
    decode_blocks(format_.blocks, block, 1, values.data());
    values_.insert(values_.end(), values.begin(), values.end());
  }
}

void RandomWeight::interleave() {
  interleaved_ = in_rows_;
  std::vector<std::byte> scratch(tile_scratch_bytes(format_, cols_));
  const WeightView planes = view_of(interleaved_, false);
  for (std::int64_t i = 0; i < n_tiles(rows_); ++i) arrange_tile(planes, i, scratch);
}

WeightView RandomWeight::view_of(const Planes& planes, bool is_interleaved) const {
  const bool scaled = planes.scales.size() > 1, biased = planes.biases.size() > 1;
  return {.format = arranged(format_, is_interleaved),
          .rows = rows_,
          .cols = cols_,
          .data = planes.data.data() + 1,
          .scales = scaled ? planes.scales.data() + 1 : nullptr,
          .biases = biased ? planes.biases.data() + 1 : nullptr,
          .block_row0 = block_row0_};
}

WeightView RandomWeight::view() const {
  return view_of(in_rows_, false);
}
WeightView RandomWeight::interleaved() const {
  return view_of(arranged(format_, true).is_interleaved ? interleaved_ : in_rows_, true);
}

std::vector<WeightFormat> all_formats() {
  std::vector<WeightFormat> formats{
      {.kind = WeightKind::F32}, {.kind = WeightKind::F16}, {.kind = WeightKind::BF16}};
  const DType scale_types[] = {DType::BF16, DType::F16, DType::F32};
  int next = 0;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      formats.push_back({.kind = WeightKind::Affine,
                         .bits = bits,
                         .group = group,
                         .scale_dtype = scale_types[next++ % 3]});
    }
    ++next;  // so that every group meets every type of scale
  }
  const auto zeroed = [&](int bits, int group, AffineZero zero) {
    formats.push_back({.kind = WeightKind::Affine,
                       .bits = bits,
                       .group = group,
                       .scale_dtype = scale_types[next++ % 3],
                       .zero = zero});
  };
  for (const int group : {32, 64, 128}) zeroed(4, group, AffineZero::MidCode);
  zeroed(8, 64, AffineZero::MidCode);
  zeroed(3, 32, AffineZero::MidCode);
  for (const int group : {128, 32, 64}) zeroed(4, group, AffineZero::ZeroPoint);
  zeroed(8, 128, AffineZero::ZeroPoint);
  zeroed(6, 32, AffineZero::ZeroPoint);
  const WeightFormat mxfp4{.kind = WeightKind::Fp4, .group = 32, .scale_dtype = DType::U8};
  WeightFormat nvfp4{
      .kind = WeightKind::Fp4, .group = 16, .scale_dtype = DType::F8E4M3, .has_tensor_scale = true};
  formats.push_back(mxfp4);
  formats.push_back(nvfp4);
  nvfp4.tensor_scale_divides = true;
  formats.push_back(nvfp4);
  formats.push_back({.kind = WeightKind::Fp4, .group = 32, .scale_dtype = DType::F8E4M3});
  formats.push_back({.kind = WeightKind::Fp8Block, .block = 128, .scale_dtype = DType::F32});
  formats.push_back({.kind = WeightKind::Fp8Block, .block = 128, .scale_dtype = DType::BF16});
  formats.push_back({.kind = WeightKind::Fp8Block, .block = 16, .scale_dtype = DType::BF16});
  for (int type = 1; type <= static_cast<int>(BlockType::NVFP4); ++type)
    formats.push_back({.kind = WeightKind::Block, .blocks = static_cast<BlockType>(type)});
  return formats;
}

std::string format_name(const WeightFormat& format) {
  std::string name;
  for (const char c : describe(format))
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  if (format.group > 0 || format.block > 0)
    name += fmt::format("_{}", dtype_name(format.scale_dtype));
  if (format.zero == AffineZero::ZeroPoint) name += "_zero_points";
  if (format.has_tensor_scale) name += format.tensor_scale_divides ? "_divided" : "_scaled";
  return name;
}

std::int64_t fitting_cols(const WeightFormat& format, std::int64_t cols) {
  const std::int64_t step =
      format.kind == WeightKind::Block ? block_shape(format.blocks).values : format.group;
  return step == 0 ? cols : (cols + step - 1) / step * step;
}

std::vector<WeightFormat> tiled_formats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat& format : test::all_formats()) {
    if (arranged(format, true).is_interleaved) formats.push_back(format);
  }
  return formats;
}

}  // namespace moeflux::test
