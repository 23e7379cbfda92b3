// Stored rows as floats, and their products with few rows of activations, for 64-bit Arm.
//
// A decoder gives 16 columns of a row at a time. A product takes two rows at once, which is enough
// to hide the latency of additions behind the decoding, and never stores the decoded weights.
#if defined(__aarch64__)

#include <cstdint>

#include <arm_neon.h>

#include "backends/cpu/codes_neon.h"
#include "backends/cpu/fp4_rows.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/rows.h"
#include "backends/cpu/with_format.h"
#include "quant/codec.h"

namespace moeflux::cpu {
namespace {

constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kAhead = 16 << 10;  // see rows_avx512.cpp
constexpr int kRows = 2;                   // of a product

struct Sixteen {
  float32x4_t part[4];
};

// A scale in all lanes.
float32x4_t load_scale(DType dtype, const std::byte* plane, std::int64_t index) noexcept {
  if (dtype == DType::F32) return vdupq_n_f32(load<float>(plane + index * 4));
  const uint16x4_t half = vdup_n_u16(load<std::uint16_t>(plane + index * 2));
  if (dtype == DType::F16) return vcvt_f32_f16(vreinterpret_f16_u16(half));
  return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}

std::int64_t scale_bytes(DType dtype) noexcept {
  return dtype == DType::F32 ? 4 : 2;
}

// Zeroed: a code that stands for zero is subtracted, instead of a bias added.
template <int Bits, bool Zeroed>
class Affine {
 public:
  void open(const WeightView& m, std::int64_t row) noexcept {
    data_ = m.data + row * (m.cols * Bits / 8);
    dtype_ = m.format.scale_dtype;
    const std::int64_t first = row * (m.cols / m.format.group), size = scale_bytes(dtype_);
    scales_ = m.scales + first * size;
    has_middle_ = m.format.zero == AffineZero::MidCode;
    if (!has_middle_) biases_ = m.biases + first * (Zeroed ? 1 : size);
  }
  static std::int64_t segment_cols(const WeightView& m) noexcept { return m.format.group; }
  const std::byte* address(std::int64_t c) const noexcept { return data_ + c * Bits / 8; }
  void enter(std::int64_t segment) noexcept {
    scale_ = load_scale(dtype_, scales_, segment);
    if constexpr (Zeroed) {
      const int zero =
          has_middle_ ? 1 << (Bits - 1) : std::to_integer<std::uint8_t>(biases_[segment]);
      bias_ = vdupq_n_f32(static_cast<float>(zero));
    } else {
      bias_ = load_scale(dtype_, biases_, segment);
    }
  }
  Sixteen at(std::int64_t c) const noexcept {
    const uint8x16_t codes = load_16_codes<Bits>(address(c));
    const uint16x8_t low = vmovl_u8(vget_low_u8(codes)), high = vmovl_high_u8(codes);
    return {{value_of(vmovl_u16(vget_low_u16(low))), value_of(vmovl_high_u16(low)),
             value_of(vmovl_u16(vget_low_u16(high))), value_of(vmovl_high_u16(high))}};
  }

 private:
  float32x4_t value_of(uint32x4_t codes) const noexcept {
    if constexpr (Zeroed) return vmulq_f32(scale_, vsubq_f32(vcvtq_f32_u32(codes), bias_));
    return vaddq_f32(vmulq_f32(scale_, vcvtq_f32_u32(codes)), bias_);
  }

  const std::byte* data_;
  DType dtype_;
  const std::byte* scales_;
  const std::byte* biases_;
  bool has_middle_;
  float32x4_t scale_, bias_;
};

// E2M1 numbers as half floats, of which the lower byte is zero.
class Fp4 {
 public:
  void open(const WeightView& m, std::int64_t row) noexcept { row_.open(m, row); }
  static std::int64_t segment_cols(const WeightView& m) noexcept { return m.format.group; }
  const std::byte* address(std::int64_t c) const noexcept { return row_.data + c / 2; }
  void enter(std::int64_t segment) noexcept { scale_ = vdupq_n_f32(row_.scale(segment)); }
  Sixteen at(std::int64_t c) const noexcept {
    alignas(16) static constexpr std::uint8_t kUpper[16] = {0,    0x38, 0x3C, 0x3E, 0x40, 0x42,
                                                            0x44, 0x46, 0x80, 0xB8, 0xBC, 0xBE,
                                                            0xC0, 0xC2, 0xC4, 0xC6};
    const uint8x16_t upper = vqtbl1q_u8(vld1q_u8(kUpper), load_16_codes<4>(address(c)));
    const uint8x16_t lower = vdupq_n_u8(0);
    const float16x8_t first = vreinterpretq_f16_u8(vzip1q_u8(lower, upper));
    const float16x8_t second = vreinterpretq_f16_u8(vzip2q_u8(lower, upper));
    return {{value_of(vcvt_f32_f16(vget_low_f16(first))), value_of(vcvt_high_f32_f16(first)),
             value_of(vcvt_f32_f16(vget_low_f16(second))), value_of(vcvt_high_f32_f16(second))}};
  }

 private:
  float32x4_t value_of(float32x4_t number) const noexcept {
    const float32x4_t value = vmulq_f32(number, scale_);
    if (!row_.has_tensor_scale) return value;
    const float32x4_t scale = vdupq_n_f32(row_.tensor_scale);
    return row_.divides ? vdivq_f32(value, scale) : vmulq_f32(value, scale);
  }

  Fp4Row row_;
  float32x4_t scale_;
};

template <WeightKind Kind>
class Plain {
 public:
  static constexpr int kBytes = Kind == WeightKind::F32 ? 4 : 2;

  void open(const WeightView& m, std::int64_t row) noexcept {
    data_ = m.data + row * m.cols * kBytes;
  }
  static std::int64_t segment_cols(const WeightView& m) noexcept { return m.cols; }
  const std::byte* address(std::int64_t c) const noexcept { return data_ + c * kBytes; }
  void enter(std::int64_t) noexcept {}
  Sixteen at(std::int64_t c) const noexcept {
    const std::byte* from = address(c);
    return {
        {four(from), four(from + 4 * kBytes), four(from + 8 * kBytes), four(from + 12 * kBytes)}};
  }

 private:
  static float32x4_t four(const std::byte* at) noexcept {
    if constexpr (Kind == WeightKind::F32) {
      return load<float32x4_t>(at);
    } else if constexpr (Kind == WeightKind::F16) {
      return vcvt_f32_f16(load<float16x4_t>(at));
    } else {
      return vreinterpretq_f32_u32(vshll_n_u16(load<uint16x4_t>(at), 16));
    }
  }
  const std::byte* data_;
};

// E4M3: exponent and mantissa go to their places in a half float, and 2^8 mends the bias of the
// exponent; subnormal numbers come out right as well.
class Fp8 {
 public:
  void open(const WeightView& m, std::int64_t row) noexcept {
    data_ = m.data + row * m.cols;
    dtype_ = m.format.scale_dtype;
    const std::int64_t per_row = (m.cols + m.format.block - 1) / m.format.block;
    const std::int64_t first = (m.block_row0 + row) / rows_per_scale(m.format) * per_row;
    scales_ = m.scales + first * scale_bytes(dtype_);
  }
  static std::int64_t segment_cols(const WeightView& m) noexcept { return m.format.block; }
  const std::byte* address(std::int64_t c) const noexcept { return data_ + c; }
  void enter(std::int64_t segment) noexcept { scale_ = load_scale(dtype_, scales_, segment); }
  Sixteen at(std::int64_t c) const noexcept {
    const uint8x16_t bytes = load<uint8x16_t>(address(c));
    const uint8x16_t is_nan = vceqq_u8(vorrq_u8(bytes, vdupq_n_u8(0x80)), vdupq_n_u8(0xFF));
    const uint8x16_t nan = vandq_u8(is_nan, vdupq_n_u8(0x80));
    const float16x8_t low = halves(vget_low_u8(bytes), vget_low_u8(nan));
    const float16x8_t high = halves(vget_high_u8(bytes), vget_high_u8(nan));
    return {{value_of(vcvt_f32_f16(vget_low_f16(low))), value_of(vcvt_high_f32_f16(low)),
             value_of(vcvt_f32_f16(vget_low_f16(high))), value_of(vcvt_high_f32_f16(high))}};
  }

 private:
  // nan: 0x80 for a NaN, else 0. The sign is at two bits at first; the lower of them, which belongs
  // to the exponent, turns the largest number into a NaN.
  static float16x8_t halves(uint8x8_t bytes, uint8x8_t nan) noexcept {
    const uint16x8_t wide = vreinterpretq_u16_s16(vshll_n_s8(vreinterpret_s8_u8(bytes), 7));
    const uint16x8_t finite = vandq_u16(wide, vdupq_n_u16(0xBFFF));
    return vreinterpretq_f16_u16(vmlal_u8(finite, nan, vdup_n_u8(0x80)));
  }
  float32x4_t value_of(float32x4_t half) const noexcept {
    return vmulq_f32(vmulq_f32(half, vdupq_n_f32(0x1p8f)), scale_);
  }

  const std::byte* data_;
  DType dtype_;
  const std::byte* scales_;
  float32x4_t scale_;
};

template <class Decoder>
void decode(const WeightView& m, std::int64_t row, float* out) noexcept {
  Decoder decoder;
  decoder.open(m, row);
  const std::int64_t segment = Decoder::segment_cols(m);
  for (std::int64_t c = 0, s = 0; c < m.cols; ++s) {
    const std::int64_t end = c + segment < m.cols ? c + segment : m.cols;
    decoder.enter(s);
    for (; c < end; c += kWidth) {
      const Sixteen values = decoder.at(c);
      for (int i = 0; i < 4; ++i) vst1q_f32(out + c + 4 * i, values.part[i]);
    }
  }
}

// The tree of the scalar reference: 16, 8, 4, 2, 1 lanes.
float sum_lanes(const Sixteen& s) noexcept {
  const float32x4_t four =
      vaddq_f32(vaddq_f32(s.part[0], s.part[2]), vaddq_f32(s.part[1], s.part[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

// kRows rows of weights, of a multiple of 16 columns, with N of activations.
template <class Decoder, int N>
void products(const Matvec& op, std::int64_t r, std::int64_t at) noexcept {
  const WeightView& m = *op.matrix;
  const float* x = op.x + at * op.x_stride;
  Decoder decoders[kRows];
  Sixteen sums[kRows][N] = {};
  for (int k = 0; k < kRows; ++k) decoders[k].open(m, op.row + r + k);
  const std::int64_t segment = Decoder::segment_cols(m);
  for (std::int64_t c = 0, s = 0; c < m.cols; ++s) {
    const std::int64_t end = c + segment < m.cols ? c + segment : m.cols;
#pragma GCC unroll 2
    for (int k = 0; k < kRows; ++k) decoders[k].enter(s);
    for (; c < end; c += kWidth) {
#pragma GCC unroll 2
      for (int k = 0; k < kRows; ++k) {
        __builtin_prefetch(decoders[k].address(c) + kAhead, 0, 2);
        const Sixteen values = decoders[k].at(c);
#pragma GCC unroll 2
        for (int j = 0; j < N; ++j) {
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) {
            sums[k][j].part[i] =
                vaddq_f32(sums[k][j].part[i],
                          vmulq_f32(values.part[i], vld1q_f32(x + j * op.x_stride + c + 4 * i)));
          }
        }
      }
    }
  }
  for (int j = 0; j < N; ++j) {
    for (int k = 0; k < kRows; ++k) op.y[(at + j) * op.y_stride + r + k] = sum_lanes(sums[k][j]);
  }
}

struct Decoders {
  template <WeightKind Kind>
  using OfFloats = Plain<Kind>;
  using OfFp8 = Fp8;
  template <int Bits>
  using OfCodes = Affine<Bits, false>;
  template <int Bits>
  using OfZeroed = Affine<Bits, true>;
  using OfFp4 = Fp4;
};

}  // namespace

void decode_row_neon(const WeightView& m, std::int64_t row, float* out) noexcept {
  const auto decode_it = [&]<class Decoder>() { decode<Decoder>(m, row, out); };
  if (m.cols % kWidth != 0 || !with_decoder<Decoders>(m.format, decode_it)) decode_row(m, row, out);
}

void matvec_neon(const Matvec& op) noexcept {
  std::int64_t r = 0;
  const auto multiply = [&]<class Decoder>() {
    for (; r + kRows <= op.n_rows; r += kRows) {
      std::int64_t i = 0;
      for (; i + 2 <= op.n; i += 2) products<Decoder, 2>(op, r, i);
      if (i < op.n) products<Decoder, 1>(op, r, i);
    }
  };
  if (op.matrix->cols % kWidth == 0) with_decoder<Decoders>(op.matrix->format, multiply);
  matvec_by_rows(neon_kernels(), op, r);
}

}  // namespace moeflux::cpu

#endif
