// Compiled for AVX-512 (F, BW, DQ, VL); reached only through the table. Includes nothing that could
// be instantiated here and linked into code for other processors.
#if defined(__x86_64__)

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/kernels.h"
#include "quant/codec.h"

namespace moeflux::cpu {
namespace {

__mmask16 first_lanes(std::int64_t n) noexcept {
  return static_cast<__mmask16>((1u << n) - 1);
}

__m512 accumulate(__m512 sum, __m512 a, __m512 b) noexcept {
  return _mm512_add_ps(sum, _mm512_mul_ps(a, b));
}

// The tree of the scalar reference: 16, 8, 4, 2, 1 lanes.
float finish(__m512 sum) noexcept {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Adds the tail to lanes 0, 1, ... and leaves the others untouched, as the reference does.
__m512 add_tail(__m512 sum, const float* a, const float* b, std::int64_t n) noexcept {
  if (n == 0) return sum;
  const __mmask16 lanes = first_lanes(n);
  const __m512 product =
      _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, a), _mm512_maskz_loadu_ps(lanes, b));
  return _mm512_mask_add_ps(sum, lanes, sum, product);
}

float dot(const float* a, const float* b, std::int64_t n) noexcept {
  __m512 sum = _mm512_setzero_ps();
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    sum = accumulate(sum, _mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i));
  return finish(add_tail(sum, a + i, b + i, n - i));
}

void dot_rows(const float* a, const float* x, std::int64_t x_stride, std::int64_t n_rows,
              std::int64_t n, float* y, std::int64_t y_stride) noexcept {
  constexpr int kRows = 8;  // independent chains hide the latency of an add
  std::int64_t row = 0;
  for (; row + kRows <= n_rows; row += kRows) {
    const float* b = x + row * x_stride;
    __m512 sums[kRows];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      const __m512 values = _mm512_loadu_ps(a + i);
      for (int r = 0; r < kRows; ++r)
        sums[r] = accumulate(sums[r], values, _mm512_loadu_ps(b + r * x_stride + i));
    }
    for (int r = 0; r < kRows; ++r) {
      y[(row + r) * y_stride] = finish(add_tail(sums[r], a + i, b + r * x_stride + i, n - i));
    }
  }
  for (; row < n_rows; ++row) y[row * y_stride] = dot(a, x + row * x_stride, n);
}

void axpy(float scale, const float* x, float* y, std::int64_t n) noexcept {
  const __m512 s = _mm512_set1_ps(scale);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    _mm512_storeu_ps(y + i, accumulate(_mm512_loadu_ps(y + i), s, _mm512_loadu_ps(x + i)));
  }
  if (i < n) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 sum =
        accumulate(_mm512_maskz_loadu_ps(lanes, y + i), s, _mm512_maskz_loadu_ps(lanes, x + i));
    _mm512_mask_storeu_ps(y + i, lanes, sum);
  }
}

float load_scale(DType dtype, const std::byte* at) noexcept {
  float value = 0;
  decode_floats(dtype, at, 1, &value);
  return value;
}

// 16 codes of b bits are 2 b bytes.
__m128i load_16_codes(const std::byte* data, int bits, std::uint64_t spread) noexcept {
  const void* at = data;
  if (bits == 8) return _mm_loadu_si128(static_cast<const __m128i*>(at));
  if (bits == 4) {
    const __m128i packed = _mm_loadl_epi64(static_cast<const __m128i*>(at));
    const __m128i low = _mm_and_si128(packed, _mm_set1_epi8(15));
    const __m128i high = _mm_and_si128(_mm_srli_epi16(packed, 4), _mm_set1_epi8(15));
    return _mm_unpacklo_epi8(low, high);
  }
  std::uint64_t first = 0, second = 0;
  std::memcpy(&first, data, static_cast<std::size_t>(bits));
  std::memcpy(&second, data + bits, static_cast<std::size_t>(bits));
  return _mm_set_epi64x(static_cast<long long>(_pdep_u64(second, spread)),
                        static_cast<long long>(_pdep_u64(first, spread)));
}

void decode_affine(const WeightView& m, std::int64_t row, float* out) noexcept {
  const WeightFormat& f = m.format;
  const auto scale_size = static_cast<std::int64_t>(dtype_size(f.scale_dtype));
  const std::int64_t n_groups = m.cols / f.group;
  const std::byte* data = m.data + row * (m.cols * f.bits / 8);
  const std::byte* scales = m.scales + row * n_groups * scale_size;
  const std::byte* biases = m.biases + row * n_groups * scale_size;
  const std::uint64_t spread = 0x0101010101010101u * ((1u << f.bits) - 1);
  for (std::int64_t g = 0; g < n_groups; ++g) {
    const __m512 scale = _mm512_set1_ps(load_scale(f.scale_dtype, scales + g * scale_size));
    const __m512 bias = _mm512_set1_ps(load_scale(f.scale_dtype, biases + g * scale_size));
    for (int i = 0; i < f.group; i += 16, data += 2 * f.bits, out += 16) {
      const __m512 codes =
          _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16_codes(data, f.bits, spread)));
      _mm512_storeu_ps(out, _mm512_add_ps(_mm512_mul_ps(scale, codes), bias));
    }
  }
}

void decode_16_bit(const WeightView& m, std::int64_t row, float* out) noexcept {
  const std::byte* data = m.data + row * m.cols * 2;
  std::int64_t i = 0;
  for (; i + 16 <= m.cols; i += 16) {
    const __m256i halves =
        _mm256_loadu_si256(static_cast<const __m256i*>(static_cast<const void*>(data + i * 2)));
    const __m512 values =
        m.format.kind == WeightKind::F16
            ? _mm512_cvtph_ps(halves)
            : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    _mm512_storeu_ps(out + i, values);
  }
  decode_floats(m.format.kind == WeightKind::F16 ? DType::F16 : DType::BF16, data + i * 2,
                m.cols - i, out + i);
}

void decode_row_avx512(const WeightView& m, std::int64_t row, float* out) noexcept {
  switch (m.format.kind) {
    case WeightKind::Affine:
      return decode_affine(m, row, out);
    case WeightKind::F16:
    case WeightKind::BF16:
      return decode_16_bit(m, row, out);
    default:
      return decode_row(m, row, out);
  }
}

}  // namespace

const KernelTable& avx512_kernels() {
  static const KernelTable kTable{.name = "avx512",
                                  .decode_row = decode_row_avx512,
                                  .dot = dot,
                                  .dot_rows = dot_rows,
                                  .axpy = axpy,
                                  .q8 = &q8_scalar()};
  return kTable;
}

}  // namespace moeflux::cpu

#endif
