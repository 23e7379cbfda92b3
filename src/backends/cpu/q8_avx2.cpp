// The fast path for AVX2 with FMA, F16C and BMI2; reached only through the table. Includes nothing
// that could be instantiated here and linked into code for other processors.
//
// The 16 lanes are two registers. They do not meet before the end, so a tile goes over the blocks
// once per half, and has registers for 8 sums.
#if defined(__x86_64__)

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/q8.h"

namespace moeflux::cpu {

void q8_quantize_avx2(const Q8Layout& layout, const float* x, std::byte* out,
                      std::byte* rest) noexcept;

namespace {

constexpr int kLanes = Q8Layout::kLanes;
constexpr int kBlock = Q8Layout::kBlockBytes;
constexpr int kHalf = kBlock / 2;
constexpr int kMaxRows = 4;
constexpr std::int64_t kAhead = 16 << 10;        // see q8_avx512.h
constexpr std::int64_t kCacheBytes = 256 << 10;  // of activations that one pass goes over

const __m256i* at(const std::byte* base, std::int64_t offset) noexcept {
  return static_cast<const __m256i*>(static_cast<const void*>(base + offset));
}
const float* floats_at(const std::byte* base, std::int64_t offset) noexcept {
  return static_cast<const float*>(static_cast<const void*>(base + offset));
}

// ---- weights

// Scales or biases of a row as floats, then zeros to a multiple of 16.
void load_plane(const WeightView& w, const std::byte* plane, std::int64_t row,
                std::int64_t n_groups, float* out) noexcept {
  const DType dtype = w.format.scale_dtype;
  const std::byte* from = plane + row * n_groups * (dtype == DType::F32 ? 4 : 2);
  if (dtype == DType::F32) {
    std::memcpy(out, from, static_cast<std::size_t>(n_groups) * 4);
  } else {
    for (std::int64_t g = 0; g < n_groups; g += 8) {
      const std::int64_t n = n_groups - g < 8 ? n_groups - g : 8;
      __m128i raw = _mm_setzero_si128();
      if (n == 8) {
        std::memcpy(&raw, from + g * 2, 16);
      } else {
        std::memcpy(&raw, from + g * 2, static_cast<std::size_t>(n) * 2);
      }
      _mm256_storeu_ps(out + g, dtype == DType::F16 ? _mm256_cvtph_ps(raw)
                                                    : _mm256_castsi256_ps(_mm256_slli_epi32(
                                                          _mm256_cvtepu16_epi32(raw), 16)));
    }
  }
  const std::int64_t padded = (n_groups + kLanes - 1) / kLanes * kLanes;
  std::memset(out + n_groups, 0, sizeof(float) * static_cast<std::size_t>(padded - n_groups));
}

// Codes of 3, 5 or 6 bits, one per byte.
template <int Bits>
void spread_row(const std::byte* data, std::int64_t cols, std::byte* out) noexcept {
  constexpr std::uint64_t kMask = 0x0101010101010101u * ((1u << Bits) - 1);
  const std::byte* end = data + cols * Bits / 8;
  for (; data < end; data += Bits, out += 8) {
    std::uint64_t packed = 0;
    if (end - data >= 8) {
      std::memcpy(&packed, data, 8);
    } else {
      std::memcpy(&packed, data, Bits);
    }
    const std::uint64_t codes = _pdep_u64(packed, kMask);
    std::memcpy(out, &codes, 8);
  }
}

struct RowBlock {
  const std::byte* data[kMaxRows];
  const std::byte* last[kMaxRows];  // the block that ends with the row, zeros after it
  const float* scales[kMaxRows];
  const float* biases[kMaxRows];
};

// ---- products

// Codes of a half block as the products below want them: 2 and 4 bits as bytes, 8 bits as the
// 16-bit values of even and of odd bytes.
template <int Bits>
struct Codes {
  static constexpr int kSteps = 8 / Bits;
  static constexpr int kCount = Bits == 8 ? 2 : kSteps;
  __m256i part[kCount];

  static Codes of_weight(__m256i packed) noexcept {
    Codes codes;
    for (int i = 0; i < kCount; ++i) {
      const __m256i mask = Bits == 8 ? _mm256_set1_epi16(0xFF) : _mm256_set1_epi8((1 << Bits) - 1);
      codes.part[i] = _mm256_and_si256(_mm256_srli_epi16(packed, i * Bits), mask);
    }
    return codes;
  }
  static Codes of_x(const std::byte* at_step0) noexcept {
    Codes codes;
    if constexpr (Bits == 8) {
      const __m256i x = _mm256_load_si256(at(at_step0, 0));
      codes.part[0] = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
      codes.part[1] = _mm256_srai_epi16(x, 8);
    } else {
      for (int i = 0; i < kSteps; ++i) codes.part[i] = _mm256_load_si256(at(at_step0, i * kBlock));
    }
    return codes;
  }
};

// The integer sums of 8 lanes. Products of 2 and 4 bits fit into 16 bits, 4 and 2 of them added.
template <int Bits>
__m256i lane_sums(const Codes<Bits>& w, const Codes<Bits>& x) noexcept {
  if constexpr (Bits == 8) {
    return _mm256_add_epi32(_mm256_madd_epi16(w.part[0], x.part[0]),
                            _mm256_madd_epi16(w.part[1], x.part[1]));
  } else {
    __m256i pairs = _mm256_maddubs_epi16(w.part[0], x.part[0]);
    for (int i = 1; i < 8 / Bits; ++i) {
      pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w.part[i], x.part[i]));
    }
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
}

// The tree of the reference: 8, 4, 2, 1 lanes.
float sum_lanes(__m256 low, __m256 high) noexcept {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Lanes [8 half, 8 half + 8) of the sums of rows [row0, row0 + R) with N rows of activations.
template <int Bits, int R, int N>
void half_tile(const Q8Layout& layout, const RowBlock& rows, int row0, const std::byte* x, int half,
               __m256 (&sums)[R][N]) noexcept {
  constexpr int kSteps = 8 / Bits;
  const int shift = __builtin_ctz(static_cast<unsigned>(layout.group / (4 * kSteps)));
  const __m256i group_of_lane =
      _mm256_srl_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm_cvtsi32_si128(shift));
  const std::int64_t n_whole = layout.cols / kSteps / kBlock;
  const std::int64_t at_half = std::int64_t{half} * kHalf;
  alignas(32) float products[R][N][kLanes + 8];  // 8 are read from any group on
  std::memset(products, 0, sizeof products);
  __m256 acc[R][N];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) acc[r][i] = _mm256_setzero_ps();
  }
  for (std::int64_t c = 0, b = 0; c < layout.n_chunks(); ++c) {
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < N; ++i) {
        const float* x_scales = floats_at(x, i * layout.row_bytes + layout.scales_at) + c * kLanes;
        const float* scales = rows.scales[row0 + r] + c * kLanes;
        for (int g = 0; g < kLanes; g += 8) {
          _mm256_store_ps(products[r][i] + g,
                          _mm256_mul_ps(_mm256_loadu_ps(scales + g), _mm256_load_ps(x_scales + g)));
        }
      }
    }
    std::int64_t lane = std::int64_t{half} * 8;
    for (int k = 0; k < layout.chunk_blocks() && b < layout.n_blocks; ++k, ++b, lane += kLanes) {
      const std::int64_t group = lane >> shift;
      Codes<Bits> w[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const std::byte* data =
            b < n_whole ? rows.data[row0 + r] + b * kBlock : rows.last[row0 + r];
        if (N == 1 && half == 0) _mm_prefetch(data + kAhead, _MM_HINT_T1);
        w[r] = Codes<Bits>::of_weight(_mm256_loadu_si256(at(data, at_half)));
      }
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        const auto xi = Codes<Bits>::of_x(x + i * layout.row_bytes + b * kSteps * kBlock + at_half);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const __m256 scale =
              _mm256_permutevar8x32_ps(_mm256_loadu_ps(products[r][i] + group), group_of_lane);
          acc[r][i] =
              _mm256_fmadd_ps(_mm256_cvtepi32_ps(lane_sums<Bits>(w[r], xi)), scale, acc[r][i]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const float* x_sums = floats_at(x, i * layout.row_bytes + layout.sums_at);
      for (std::int64_t g = half * 8; g < layout.n_groups; g += kLanes) {
        acc[r][i] = _mm256_fmadd_ps(_mm256_loadu_ps(rows.biases[row0 + r] + g),
                                    _mm256_load_ps(x_sums + g), acc[r][i]);
      }
      sums[r][i] = acc[r][i];
    }
  }
}

// Rows [row0, row0 + R) of the block with activations [i, i + N).
template <int Bits, int R, int N>
void tile(const Q8Matmul& op, const RowBlock& rows, std::int64_t first_row, int row0,
          std::int64_t i) noexcept {
  __m256 low[R][N], high[R][N];
  const std::byte* x = op.x + i * op.layout->row_bytes;
  half_tile<Bits, R, N>(*op.layout, rows, row0, x, 0, low);
  half_tile<Bits, R, N>(*op.layout, rows, row0, x, 1, high);
  for (int k = 0; k < N; ++k) {
    const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i + k] : i + k;
    float* y = op.y + target * op.y_stride + first_row - op.row + row0;
    for (int r = 0; r < R; ++r) y[r] = sum_lanes(low[r][k], high[r][k]);
  }
}

template <int Bits, int R>
void tokens_of(const Q8Matmul& op, const RowBlock& rows, std::int64_t first_row, std::int64_t begin,
               std::int64_t end) noexcept {
  constexpr int kTileRows = R < 2 ? R : 2;
  std::int64_t i = begin;
  for (; i + 4 <= end; i += 4) {
    for (int row0 = 0; row0 < R; row0 += kTileRows) {
      tile<Bits, kTileRows, 4>(op, rows, first_row, row0, i);
    }
  }
  for (; i < end; ++i) tile<Bits, R, 1>(op, rows, first_row, 0, i);
}

// Rows [row, row + R) with activations [begin, end).
template <int R>
void rows_of(const Q8Matmul& op, std::int64_t row, std::int64_t begin, std::int64_t end) noexcept {
  const Q8Layout& layout = *op.layout;
  const WeightView& w = *op.weight;
  const int bits = w.format.bits;
  const std::int64_t plane_floats = layout.n_chunks() * kLanes;
  const std::int64_t row_bytes = layout.cols / layout.steps, whole = row_bytes / kBlock * kBlock;
  float* planes = op.scratch;
  auto* codes = static_cast<std::byte*>(static_cast<void*>(planes + 2 * kMaxRows * plane_floats));
  std::byte last[R][kBlock] = {};
  RowBlock rows;
  for (int r = 0; r < R; ++r, planes += 2 * plane_floats) {
    load_plane(w, w.scales, row + r, layout.n_groups, planes);
    load_plane(w, w.biases, row + r, layout.n_groups, planes + plane_floats);
    const std::byte* data = w.data + (row + r) * (layout.cols * bits / 8);
    if (layout.bits != bits) {
      bits == 3   ? spread_row<3>(data, layout.cols, codes)
      : bits == 5 ? spread_row<5>(data, layout.cols, codes)
                  : spread_row<6>(data, layout.cols, codes);
      data = codes;
      codes += layout.n_blocks * kBlock;
    }
    if (whole < row_bytes) {
      std::memcpy(last[r], data + whole, static_cast<std::size_t>(row_bytes - whole));
    }
    rows.scales[r] = planes;
    rows.biases[r] = planes + plane_floats;
    rows.data[r] = data;
    rows.last[r] = last[r];
  }
  switch (layout.bits) {
    case 2:
      return tokens_of<2, R>(op, rows, row, begin, end);
    case 4:
      return tokens_of<4, R>(op, rows, row, begin, end);
    default:
      return tokens_of<8, R>(op, rows, row, begin, end);
  }
}

void matmul(const Q8Matmul& op) noexcept {
  const std::int64_t fit = kCacheBytes / op.layout->row_bytes / 4 * 4;
  const std::int64_t step = fit > 4 ? fit : 4;
  const std::int64_t last = op.row + op.n_rows;
  for (std::int64_t begin = 0; begin < op.n; begin += step) {
    const std::int64_t end = begin + step < op.n ? begin + step : op.n;
    std::int64_t row = op.row;
    for (; row + kMaxRows <= last; row += kMaxRows) rows_of<kMaxRows>(op, row, begin, end);
    for (; row < last; ++row) rows_of<1>(op, row, begin, end);
  }
}

}  // namespace

const Q8Kernels& q8_avx2() {
  static constexpr Q8Kernels kKernels{.quantize = q8_quantize_avx2, .matmul = matmul};
  return kKernels;
}

}  // namespace moeflux::cpu

#endif
