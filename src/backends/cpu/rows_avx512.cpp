// Stored rows as floats, and their products with few rows of activations, for AVX-512 (F, BW, DQ,
// VL). Includes nothing that could be instantiated here and linked into code for other processors.
//
// A decoder gives 16 columns of a row at a time. A product takes four rows at once, so that four
// chains of additions hide each other's latency, and never stores the decoded weights. kStep
// columns are a cache line, or as many as a decoder looks at to know whether one of them is rare:
// then at<kRare> takes care of what at<kUsual> may ignore.
#if defined(__x86_64__)

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/fp4_rows.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/rows.h"
#include "backends/cpu/with_format.h"
#include "quant/codec.h"

namespace moeflux::cpu {
namespace {

constexpr std::int64_t kWidth = 16;
// The rows of a product are short streams that the processor does not foresee.
constexpr std::int64_t kAhead = 16 << 10;
constexpr bool kUsual = false, kRare = true;

__mmask16 first_lanes(std::int64_t n) noexcept {
  return static_cast<__mmask16>((1u << n) - 1);
}
template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
const __m512i& lane_numbers() noexcept {
  alignas(64) static constexpr std::int32_t kNumbers[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                            8, 9, 10, 11, 12, 13, 14, 15};
  return *static_cast<const __m512i*>(static_cast<const void*>(kNumbers));
}

// Bits bytes. Put together in registers: a word stored in parts and read as a whole would stall.
template <int Bits>
std::uint64_t load_8_codes(const std::byte* at) noexcept {
  const auto byte = [&](int i) { return std::uint64_t{load<std::uint8_t>(at + i)} << (8 * i); };
  if constexpr (Bits == 2) return load<std::uint16_t>(at);
  if constexpr (Bits == 3) return load<std::uint16_t>(at) | byte(2);
  if constexpr (Bits == 5) return load<std::uint32_t>(at) | byte(4);
  return load<std::uint32_t>(at) | std::uint64_t{load<std::uint16_t>(at + 4)} << 32;  // 6
}

// A scale in all lanes.
__m512 load_scale(DType dtype, const std::byte* plane, std::int64_t index) noexcept {
  if (dtype == DType::F32) return _mm512_set1_ps(load<float>(plane + index * 4));
  const auto half = load<std::int16_t>(plane + index * 2);
  if (dtype == DType::F16) return _mm512_cvtph_ps(_mm256_set1_epi16(half));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_set1_epi32(half), 16));
}

// Codes of up to 4 bits choose from the 16 values they can have in their group. Zeroed: a code that
// stands for zero is subtracted, instead of a bias added.
template <int Bits, bool Zeroed>
class Affine {
 public:
  static constexpr bool kTable = Bits <= 4;
  static constexpr std::int64_t kStep = 16;

  void open(const WeightView& m, std::int64_t row) noexcept {
    data_ = m.data + row * (m.cols * Bits / 8);
    dtype_ = m.format.scale_dtype;
    const std::int64_t first = row * (m.cols / m.format.group);
    const std::int64_t size = dtype_ == DType::F32 ? 4 : 2;
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
      bias_ = _mm512_set1_ps(static_cast<float>(zero));
    } else {
      bias_ = load_scale(dtype_, biases_, segment);
    }
    if constexpr (kTable) {
      const __m512i codes = _mm512_and_si512(lane_numbers(), _mm512_set1_epi32((1 << Bits) - 1));
      scale_ = value_of(codes);
    }
  }
  static bool rare(std::int64_t) noexcept { return false; }
  template <bool>
  __m512 at(std::int64_t c) const noexcept {
    if constexpr (kTable) {
      return _mm512_permutexvar_ps(codes(address(c)), scale_);  // looks at 4 bits of an index
    } else {
      return value_of(codes(address(c)));
    }
  }
  __m512 at(std::int64_t c, __mmask16) const noexcept {
    return at<kUsual>(c);  // groups are whole
  }
  // 16 codes are 2 Bits bytes. For tables, higher bits of a lane are not cleared.
  static __m512i codes(const std::byte* at) noexcept {
    if constexpr (Bits == 8) {
      return _mm512_cvtepu8_epi32(load<__m128i>(at));
    } else if constexpr (kTable) {
      // Lanes 0..7 from the first word, the others from the one that ends with the last code.
      constexpr int kSecond = Bits == 2 ? 0 : 2 * Bits - 4;
      const __m512i second_shift = _mm512_set1_epi32(8 * Bits - 8 * kSecond);
      const __m512i in_half = _mm512_and_si512(lane_numbers(), _mm512_set1_epi32(7));
      const __m512i shift =
          _mm512_mask_add_epi32(times_bits(in_half), 0xFF00, times_bits(in_half), second_shift);
      const __m512i words =
          _mm512_mask_set1_epi32(_mm512_set1_epi32(load<std::int32_t>(at)), Bits == 2 ? 0 : 0xFF00,
                                 load<std::int32_t>(at + kSecond));
      return _mm512_srlv_epi32(words, shift);
    } else {
      constexpr std::uint64_t kSpread = 0x0101010101010101u * ((1u << Bits) - 1);
      const std::uint64_t first = load_8_codes<Bits>(at), second = load_8_codes<Bits>(at + Bits);
      return _mm512_cvtepu8_epi32(
          _mm_set_epi64x(static_cast<long long>(_pdep_u64(second, kSpread)),
                         static_cast<long long>(_pdep_u64(first, kSpread))));
    }
  }

 private:
  __m512 value_of(__m512i codes) const noexcept {
    if constexpr (Zeroed) {
      return _mm512_mul_ps(scale_, _mm512_sub_ps(_mm512_cvtepi32_ps(codes), bias_));
    }
    return _mm512_add_ps(_mm512_mul_ps(scale_, _mm512_cvtepi32_ps(codes)), bias_);
  }
  static __m512i times_bits(__m512i numbers) noexcept {
    return _mm512_mullo_epi32(numbers, _mm512_set1_epi32(Bits));
  }

  const std::byte* data_;
  DType dtype_;
  const std::byte* scales_;
  const std::byte* biases_;
  bool has_middle_;
  __m512 scale_, bias_;  // for tables, scale_ is the table
};

// As with other codes of 4 bits.
class Fp4 {
 public:
  static constexpr std::int64_t kStep = 16;

  void open(const WeightView& m, std::int64_t row) noexcept { row_.open(m, row); }
  static std::int64_t segment_cols(const WeightView& m) noexcept { return m.format.group; }
  const std::byte* address(std::int64_t c) const noexcept { return row_.data + c / 2; }
  void enter(std::int64_t segment) noexcept {
    const __m512 values =
        _mm512_setr_ps(0.0f, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    table_ = _mm512_mul_ps(values, _mm512_set1_ps(row_.scale(segment)));
    if (!row_.has_tensor_scale) return;
    const __m512 scale = _mm512_set1_ps(row_.tensor_scale);
    table_ = row_.divides ? _mm512_div_ps(table_, scale) : _mm512_mul_ps(table_, scale);
  }
  static bool rare(std::int64_t) noexcept { return false; }
  template <bool>
  __m512 at(std::int64_t c) const noexcept {
    return _mm512_permutexvar_ps(Affine<4, true>::codes(address(c)), table_);
  }
  __m512 at(std::int64_t c, __mmask16) const noexcept { return at<kUsual>(c); }

 private:
  Fp4Row row_;
  __m512 table_;
};

template <WeightKind Kind>
class Plain {
 public:
  static constexpr int kBytes = Kind == WeightKind::F32 ? 4 : 2;
  static constexpr std::int64_t kStep = 64 / kBytes;

  void open(const WeightView& m, std::int64_t row) noexcept {
    data_ = m.data + row * m.cols * kBytes;
  }
  static std::int64_t segment_cols(const WeightView& m) noexcept { return m.cols; }
  const std::byte* address(std::int64_t c) const noexcept { return data_ + c * kBytes; }
  void enter(std::int64_t) noexcept {}
  static bool rare(std::int64_t) noexcept { return false; }
  template <bool>
  __m512 at(std::int64_t c) const noexcept {
    return at(c, 0xFFFF);
  }
  __m512 at(std::int64_t c, __mmask16 lanes) const noexcept {
    if constexpr (Kind == WeightKind::F32) {
      return _mm512_maskz_loadu_ps(lanes, address(c));
    } else {
      const __m256i halves = _mm256_maskz_loadu_epi16(lanes, address(c));
      if constexpr (Kind == WeightKind::F16) return _mm512_cvtph_ps(halves);
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
  }

 private:
  const std::byte* data_;
};

// E4M3: exponent and mantissa go to their places in a float, and 2^120 mends the bias of the
// exponent; subnormal numbers come out right as well. It is part of the scale, unless that would
// overflow.
class Fp8 {
 public:
  static constexpr std::int64_t kStep = 64;

  void open(const WeightView& m, std::int64_t row) noexcept {
    data_ = m.data + row * m.cols;
    dtype_ = m.format.scale_dtype;
    const std::int64_t per_row = (m.cols + m.format.block - 1) / m.format.block;
    const std::int64_t first = (m.block_row0 + row) / rows_per_scale(m.format) * per_row;
    scales_ = m.scales + first * (dtype_ == DType::F32 ? 4 : 2);
  }
  static std::int64_t segment_cols(const WeightView& m) noexcept { return m.format.block; }
  const std::byte* address(std::int64_t c) const noexcept { return data_ + c; }
  void enter(std::int64_t segment) noexcept {
    scale_ = load_scale(dtype_, scales_, segment);
    mended_ = _mm512_mul_ps(scale_, _mm512_set1_ps(kMend));
    large_ = 2 * __builtin_bit_cast(std::uint32_t, _mm512_cvtss_f32(scale_)) >= 2 * kLarge;
  }
  bool rare(std::int64_t c) const noexcept {
    const __m512i ones = _mm512_set1_epi8(-1);
    const __m512i bytes = _mm512_or_si512(load<__m512i>(address(c)), _mm512_set1_epi8(-128));
    return large_ || _mm512_cmpeq_epi8_mask(bytes, ones) != 0;
  }
  template <bool Rare>
  __m512 at(std::int64_t c) const noexcept {
    if constexpr (Rare) {
      return at(c, 0xFFFF);
    } else {
      return _mm512_mul_ps(without_bias(widen(load<__m128i>(address(c)))), mended_);
    }
  }
  __m512 at(std::int64_t c, __mmask16 lanes) const noexcept {
    const __m128i bytes = _mm_maskz_loadu_epi8(lanes, address(c));
    const __m512 value = _mm512_mul_ps(without_bias(widen(bytes)), _mm512_set1_ps(kMend));
    const __m128i most = _mm_set1_epi8(0x7F);
    const __mmask16 nan = _mm_cmpeq_epi8_mask(_mm_and_si128(bytes, most), most);
    const __m512i sign = _mm512_and_si512(widen(bytes), _mm512_set1_epi32(INT32_MIN));
    const __m512i nans = _mm512_or_si512(sign, _mm512_set1_epi32(0x7FC00000));
    return _mm512_mul_ps(_mm512_mask_mov_ps(value, nan, _mm512_castsi512_ps(nans)), scale_);
  }

 private:
  static constexpr float kMend = 0x1p120f;
  static constexpr std::uint32_t kLarge = 0x43000000;  // 128: 2^127 is the largest power

  static __m512i widen(__m128i bytes) noexcept {
    return _mm512_slli_epi32(_mm512_cvtepi8_epi32(bytes), 20);
  }
  static __m512 without_bias(__m512i wide) noexcept {
    const auto mask = static_cast<std::int32_t>(0x87F00000u);
    return _mm512_castsi512_ps(_mm512_and_si512(wide, _mm512_set1_epi32(mask)));
  }

  const std::byte* data_;
  DType dtype_;
  const std::byte* scales_;
  __m512 scale_, mended_;
  bool large_;
};

template <class Decoder>
void decode(const WeightView& m, std::int64_t row, float* out) noexcept {
  Decoder decoder;
  decoder.open(m, row);
  const std::int64_t segment = Decoder::segment_cols(m);
  for (std::int64_t begin = 0, s = 0; begin < m.cols; begin += segment, ++s) {
    const std::int64_t end = begin + segment < m.cols ? begin + segment : m.cols;
    decoder.enter(s);
    std::int64_t c = begin;
    const auto write = [&]<bool Rare>(std::int64_t n) {
      for (const std::int64_t stop = c + n; c < stop; c += kWidth)
        _mm512_storeu_ps(out + c, decoder.template at<Rare>(c));
    };
    while (c + Decoder::kStep <= end) {
      if (__builtin_expect(decoder.rare(c), 0)) {
        write.template operator()<kRare>(Decoder::kStep);
      } else {
        write.template operator()<kUsual>(Decoder::kStep);
      }
    }
    write.template operator()<kRare>((end - c) / kWidth * kWidth);
    if (c < end) {
      const __mmask16 lanes = first_lanes(end - c);
      _mm512_mask_storeu_ps(out + c, lanes, decoder.at(c, lanes));
    }
  }
}

// The tree of the scalar reference: 16, 8, 4, 2, 1 lanes.
float sum_lanes(__m512 sum) noexcept {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// R rows of weights with N of activations.
template <class Decoder, int R, int N>
class Products {
 public:
  void run(const Matvec& op, std::int64_t r, std::int64_t i) noexcept {
    const WeightView& m = *op.matrix;
    x_ = op.x + i * op.x_stride;
    x_stride_ = op.x_stride;
#pragma GCC unroll 4
    for (int k = 0; k < R; ++k) {
      decoders_[k].open(m, op.row + r + k);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) sums_[k][j] = _mm512_setzero_ps();
    }
    const std::int64_t segment = Decoder::segment_cols(m);
    for (std::int64_t begin = 0, s = 0; begin < m.cols; begin += segment, ++s) {
#pragma GCC unroll 4
      for (int k = 0; k < R; ++k) decoders_[k].enter(s);
      add_segment(begin, begin + segment < m.cols ? begin + segment : m.cols);
    }
    float* y = op.y + i * op.y_stride + r;
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) {
#pragma GCC unroll 4
      for (int k = 0; k < R; ++k) y[j * op.y_stride + k] = sum_lanes(sums_[k][j]);
    }
  }

 private:
  void add_segment(std::int64_t c, std::int64_t end) noexcept {
    for (; c + Decoder::kStep <= end; c += Decoder::kStep) {
      bool rare = false;
#pragma GCC unroll 4
      for (int k = 0; k < R; ++k) {
        _mm_prefetch(decoders_[k].address(c) + kAhead, _MM_HINT_T1);
        rare |= decoders_[k].rare(c);
      }
      if (__builtin_expect(rare, 0)) {
        add<kRare>(c, c + Decoder::kStep);
      } else {
        add<kUsual>(c, c + Decoder::kStep);
      }
    }
    const std::int64_t tail = c + (end - c) / kWidth * kWidth;
    if constexpr (Decoder::kStep > kWidth) add<kRare>(c, tail);
    if (tail < end) add_tail(tail, first_lanes(end - tail));
  }

  template <bool Rare>
  void add(std::int64_t c, std::int64_t end) noexcept {
    for (; c < end; c += kWidth) {
      __m512 values[N];
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) values[j] = _mm512_loadu_ps(x_ + j * x_stride_ + c);
#pragma GCC unroll 4
      for (int k = 0; k < R; ++k) {
        const __m512 weights = decoders_[k].template at<Rare>(c);
#pragma GCC unroll 4
        for (int j = 0; j < N; ++j)
          sums_[k][j] = _mm512_add_ps(sums_[k][j], _mm512_mul_ps(weights, values[j]));
      }
    }
  }

  // Only at the end of a row: the lanes after it stay as they are.
  void add_tail(std::int64_t c, __mmask16 lanes) noexcept {
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) {
      const __m512 values = _mm512_maskz_loadu_ps(lanes, x_ + j * x_stride_ + c);
#pragma GCC unroll 4
      for (int k = 0; k < R; ++k) {
        sums_[k][j] = _mm512_mask_add_ps(sums_[k][j], lanes, sums_[k][j],
                                         _mm512_mul_ps(decoders_[k].at(c, lanes), values));
      }
    }
  }

  const float* x_;
  std::int64_t x_stride_;
  Decoder decoders_[R];
  __m512 sums_[R][N];
};

template <class Decoder>
void multiply_4_rows(const Matvec& op, std::int64_t r) noexcept {
  std::int64_t i = 0;
  for (; i + 4 <= op.n; i += 4) Products<Decoder, 4, 4>().run(op, r, i);
  if (op.n - i == 3) Products<Decoder, 4, 3>().run(op, r, i);
  if (op.n - i == 2) Products<Decoder, 4, 2>().run(op, r, i);
  if (op.n - i == 1) Products<Decoder, 4, 1>().run(op, r, i);
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

void decode_row_avx512(const WeightView& m, std::int64_t row, float* out) noexcept {
  const auto decode_it = [&]<class Decoder>() { decode<Decoder>(m, row, out); };
  if (!with_decoder<Decoders>(m.format, decode_it)) decode_row(m, row, out);
}

void matvec_avx512(const Matvec& op) noexcept {
  const auto multiply = [&]<class Decoder>() {
    std::int64_t r = 0;
    for (; r + 4 <= op.n_rows; r += 4) multiply_4_rows<Decoder>(op, r);
    for (; r < op.n_rows; ++r) {
      for (std::int64_t i = 0; i < op.n; ++i) Products<Decoder, 1, 1>().run(op, r, i);
    }
  };
  if (!with_decoder<Decoders>(op.matrix->format, multiply)) matvec_by_rows(avx512_kernels(), op);
}

}  // namespace moeflux::cpu

#endif
