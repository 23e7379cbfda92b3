// Stored rows as floats, and their products with few rows of activations, for AVX2 with F16C and
// BMI2. Includes nothing that could be instantiated here and linked into code for other processors.
//
// A decoder gives 16 columns of a row at a time. A product takes four rows at once, so that their
// chains of additions hide each other's latency, or one with several of activations, and never
// stores the decoded weights. Steps and what is rare: see rows_avx512.cpp.
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
constexpr std::int64_t kAhead = 16 << 10;  // see rows_avx512.cpp
constexpr bool kUsual = false, kRare = true;

struct Sixteen {
  __m256 low, high;
};

template <class T>
T load(const std::byte* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
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
__m256 load_scale(DType dtype, const std::byte* plane, std::int64_t index) noexcept {
  if (dtype == DType::F32) return _mm256_set1_ps(load<float>(plane + index * 4));
  const auto half = load<std::int16_t>(plane + index * 2);
  if (dtype == DType::F16) return _mm256_cvtph_ps(_mm_set1_epi16(half));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_set1_epi32(half), 16));
}

// Zeroed: a code that stands for zero is subtracted, instead of a bias added.
template <int Bits, bool Zeroed>
class Affine {
 public:
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
      bias_ = _mm256_set1_ps(static_cast<float>(zero));
    } else {
      bias_ = load_scale(dtype_, biases_, segment);
    }
  }
  static bool rare(std::int64_t) noexcept { return false; }
  template <bool>
  Sixteen at(std::int64_t c) const noexcept {
    const __m128i bytes = codes(address(c));
    return {value_of(_mm256_cvtepu8_epi32(bytes)),
            value_of(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
  }
  // 16 codes are 2 Bits bytes.
  static __m128i codes(const std::byte* at) noexcept {
    if constexpr (Bits == 8) {
      return load<__m128i>(at);
    } else if constexpr (Bits == 4) {
      const __m128i packed = _mm_cvtsi64_si128(load<long long>(at));
      const __m128i mask = _mm_set1_epi8(15);
      return _mm_unpacklo_epi8(_mm_and_si128(packed, mask),
                               _mm_and_si128(_mm_srli_epi16(packed, 4), mask));
    } else {
      constexpr std::uint64_t kSpread = 0x0101010101010101u * ((1u << Bits) - 1);
      const std::uint64_t first = load_8_codes<Bits>(at), second = load_8_codes<Bits>(at + Bits);
      return _mm_set_epi64x(static_cast<long long>(_pdep_u64(second, kSpread)),
                            static_cast<long long>(_pdep_u64(first, kSpread)));
    }
  }

 private:
  __m256 value_of(__m256i codes) const noexcept {
    if constexpr (Zeroed) {
      return _mm256_mul_ps(scale_, _mm256_sub_ps(_mm256_cvtepi32_ps(codes), bias_));
    }
    return _mm256_add_ps(_mm256_mul_ps(scale_, _mm256_cvtepi32_ps(codes)), bias_);
  }

  const std::byte* data_;
  DType dtype_;
  const std::byte* scales_;
  const std::byte* biases_;
  bool has_middle_;
  __m256 scale_, bias_;
};

// Three bits of a code choose from the 8 sizes of its group, the fourth is the sign.
class Fp4 {
 public:
  static constexpr std::int64_t kStep = 16;

  void open(const WeightView& m, std::int64_t row) noexcept { row_.open(m, row); }
  static std::int64_t segment_cols(const WeightView& m) noexcept { return m.format.group; }
  const std::byte* address(std::int64_t c) const noexcept { return row_.data + c / 2; }
  void enter(std::int64_t segment) noexcept {
    const __m256 sizes = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
    table_ = _mm256_mul_ps(sizes, _mm256_set1_ps(row_.scale(segment)));
    if (!row_.has_tensor_scale) return;
    const __m256 scale = _mm256_set1_ps(row_.tensor_scale);
    table_ = row_.divides ? _mm256_div_ps(table_, scale) : _mm256_mul_ps(table_, scale);
  }
  static bool rare(std::int64_t) noexcept { return false; }
  template <bool>
  Sixteen at(std::int64_t c) const noexcept {
    const __m128i bytes = Affine<4, true>::codes(address(c));
    return {eight(_mm256_cvtepu8_epi32(bytes)),
            eight(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
  }

 private:
  __m256 eight(__m256i codes) const noexcept {
    const __m256 sign = _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_slli_epi32(codes, 28), _mm256_set1_epi32(INT32_MIN)));
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(table_, codes), sign);
  }

  Fp4Row row_;
  __m256 table_;
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
  Sixteen at(std::int64_t c) const noexcept {
    return {eight(address(c)), eight(address(c + 8))};
  }

 private:
  static __m256 eight(const std::byte* at) noexcept {
    if constexpr (Kind == WeightKind::F32) {
      return load<__m256>(at);
    } else if constexpr (Kind == WeightKind::F16) {
      return _mm256_cvtph_ps(load<__m128i>(at));
    } else {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load<__m128i>(at)), 16));
    }
  }
  const std::byte* data_;
};

// See rows_avx512.cpp.
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
    mended_ = _mm256_mul_ps(scale_, _mm256_set1_ps(kMend));
    large_ = 2 * __builtin_bit_cast(std::uint32_t, _mm256_cvtss_f32(scale_)) >= 2 * kLarge;
  }
  bool rare(std::int64_t c) const noexcept {
    const __m256i sign = _mm256_set1_epi8(-128);
    const __m256i most = _mm256_max_epu8(_mm256_or_si256(load<__m256i>(address(c)), sign),
                                         _mm256_or_si256(load<__m256i>(address(c + 32)), sign));
    return large_ || _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8(-1))) != 0;
  }
  template <bool Rare>
  Sixteen at(std::int64_t c) const noexcept {
    const __m128i bytes = load<__m128i>(address(c));
    return {eight<Rare>(_mm256_cvtepi8_epi32(bytes)),
            eight<Rare>(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
  }

 private:
  static constexpr float kMend = 0x1p120f;
  static constexpr std::uint32_t kLarge = 0x43000000;  // 128: 2^127 is the largest power

  template <bool Rare>
  __m256 eight(__m256i bytes) const noexcept {
    const __m256i wide = _mm256_slli_epi32(bytes, 20);
    const __m256i mask = _mm256_set1_epi32(static_cast<std::int32_t>(0x87F00000u));
    const __m256 without_bias = _mm256_castsi256_ps(_mm256_and_si256(wide, mask));
    if constexpr (!Rare) return _mm256_mul_ps(without_bias, mended_);
    const __m256 value = _mm256_mul_ps(without_bias, _mm256_set1_ps(kMend));
    const __m256i most = _mm256_set1_epi32(0x07F00000);
    const __m256i is_nan = _mm256_cmpeq_epi32(_mm256_and_si256(wide, most), most);
    const __m256i sign = _mm256_and_si256(wide, _mm256_set1_epi32(INT32_MIN));
    const __m256i nan = _mm256_or_si256(sign, _mm256_set1_epi32(0x7FC00000));
    return _mm256_mul_ps(
        _mm256_blendv_ps(value, _mm256_castsi256_ps(nan), _mm256_castsi256_ps(is_nan)), scale_);
  }

  const std::byte* data_;
  DType dtype_;
  const std::byte* scales_;
  __m256 scale_, mended_;
  bool large_;
};

// Rows of a multiple of 16 columns.
template <class Decoder>
void decode(const WeightView& m, std::int64_t row, float* out) noexcept {
  Decoder decoder;
  decoder.open(m, row);
  const std::int64_t segment = Decoder::segment_cols(m);
  for (std::int64_t c = 0, s = 0; c < m.cols; ++s) {
    const std::int64_t end = c + segment < m.cols ? c + segment : m.cols;
    decoder.enter(s);
    const auto write = [&]<bool Rare>(std::int64_t n) {
      for (const std::int64_t stop = c + n; c < stop; c += kWidth) {
        const Sixteen values = decoder.template at<Rare>(c);
        _mm256_storeu_ps(out + c, values.low);
        _mm256_storeu_ps(out + c + 8, values.high);
      }
    };
    while (c + Decoder::kStep <= end) {
      if (__builtin_expect(decoder.rare(c), 0)) {
        write.template operator()<kRare>(Decoder::kStep);
      } else {
        write.template operator()<kUsual>(Decoder::kStep);
      }
    }
    write.template operator()<kRare>(end - c);
  }
}

// The tree of the scalar reference: 16, 8, 4, 2, 1 lanes.
float sum_lanes(const Sixteen& s) noexcept {
  const __m256 eight = _mm256_add_ps(s.low, s.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// R rows of weights, of a multiple of 16 columns, with N of activations.
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
      for (int j = 0; j < N; ++j) sums_[k][j] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
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
    if constexpr (Decoder::kStep > kWidth) add<kRare>(c, end);
  }

  template <bool Rare>
  void add(std::int64_t c, std::int64_t end) noexcept {
    for (; c < end; c += kWidth) {
      Sixteen values[N];
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) {
        const float* x = x_ + j * x_stride_ + c;
        values[j] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)};
      }
#pragma GCC unroll 4
      for (int k = 0; k < R; ++k) {
        const Sixteen weights = decoders_[k].template at<Rare>(c);
#pragma GCC unroll 4
        for (int j = 0; j < N; ++j) {
          Sixteen& sum = sums_[k][j];
          sum.low = _mm256_add_ps(sum.low, _mm256_mul_ps(weights.low, values[j].low));
          sum.high = _mm256_add_ps(sum.high, _mm256_mul_ps(weights.high, values[j].high));
        }
      }
    }
  }

  const float* x_;
  std::int64_t x_stride_;
  Decoder decoders_[R];
  Sixteen sums_[R][N];
};

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

void decode_row_avx2(const WeightView& m, std::int64_t row, float* out) noexcept {
  const auto decode_it = [&]<class Decoder>() { decode<Decoder>(m, row, out); };
  if (m.cols % kWidth != 0 || !with_decoder<Decoders>(m.format, decode_it)) decode_row(m, row, out);
}

void matvec_avx2(const Matvec& op) noexcept {
  std::int64_t r = 0;
  const auto multiply = [&]<class Decoder>() {
    if (op.n == 1) {
      for (; r + 4 <= op.n_rows; r += 4) Products<Decoder, 4, 1>().run(op, r, 0);
      return;
    }
    for (; r < op.n_rows; ++r) {
      std::int64_t i = 0;
      for (; i + 4 <= op.n; i += 4) Products<Decoder, 1, 4>().run(op, r, i);
      if (op.n - i == 3) Products<Decoder, 1, 3>().run(op, r, i);
      if (op.n - i == 2) Products<Decoder, 1, 2>().run(op, r, i);
      if (op.n - i == 1) Products<Decoder, 1, 1>().run(op, r, i);
    }
  };
  if (op.matrix->cols % kWidth == 0) with_decoder<Decoders>(op.matrix->format, multiply);
  matvec_by_rows(avx2_kernels(), op, r);
}

}  // namespace moeflux::cpu

#endif
