// The fast path for AVX2 with FMA and F16C: the form Tiles, and the way through a matrix. Reached
// only through the table.
#if defined(__x86_64__)

#include "backends/cpu/q8_avx2.h"

#include "backends/cpu/q8_blocks_avx2.h"

namespace moeflux::cpu {

void q8_quantize_avx2(const Q8Layout& layout, const float* x, std::byte* out) noexcept;

namespace {

constexpr int kMaxTokens = 4;                    // rows of activations that a kernel takes
constexpr std::int64_t kCacheBytes = 256 << 10;  // of activations that one pass goes over

// ---- Tiles

// 4 codes of activations for all rows.
__m256i broadcast(const std::byte* codes) noexcept {
  std::int32_t four = 0;
  std::memcpy(&four, codes, sizeof four);
  return _mm256_set1_epi32(four);
}

// Products of codes of at most 6 bits, of which 2 * Run fit into 16 bits when added.
template <int Digits, int Run, int N>
void tile(const Q8Layout& layout, const Panel& panel, const std::byte* x,
          float (*y)[kRows]) noexcept {
  const __m256i one = _mm256_set1_epi16(1), base = _mm256_set1_epi16(256);
  __m256 acc[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) acc[i] = _mm256_setzero_ps();
  const std::byte* w = panel.codes;
  const std::byte* codes = x;
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    __m256i sums[N] = {};
    for (const std::byte* end = codes + layout.group; codes < end;) {
      __m256i high[N] = {}, low[N] = {};
#pragma GCC unroll 8
      for (int k = 0; k < Run; ++k, w += kUnit, codes += 4) {
        const __m256i rows = load(w);
        // One sum after the other: any other order needs more registers than there are.
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          const std::byte* four = codes + i * layout.row_bytes;
          high[i] = _mm256_add_epi16(high[i], _mm256_maddubs_epi16(rows, broadcast(four)));
          asm volatile("" : "+x"(high[i]));
          if constexpr (Digits == 2) {
            four += layout.low_at;
            low[i] = _mm256_add_epi16(low[i], _mm256_maddubs_epi16(rows, broadcast(four)));
            asm volatile("" : "+x"(low[i]));
          }
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) {
        sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(high[i], Digits == 2 ? base : one));
        if constexpr (Digits == 2) {
          sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(low[i], one));
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      acc[i] = add_group(layout, panel, x + i * layout.row_bytes, g, sums[i], acc[i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) _mm256_storeu_ps(y[i], acc[i]);
}

// Products of codes of 8 bits are made of 16-bit values, whatever the digits.
template <int Digits, int N>
void wide_tile(const Q8Layout& layout, const Panel& panel, const std::byte* x,
               float (*y)[kRows]) noexcept {
  // Of a group: [32 codes][even, odd][4 codes]
  alignas(kUnit) std::byte wide[N][2 * Q8Layout::kMaxGroup];
  __m256 acc[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) acc[i] = _mm256_setzero_ps();
  const std::byte* w = panel.codes;
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    for (int i = 0; i < N; ++i) {
      const std::byte* codes = x + i * layout.row_bytes + g * layout.group;
      for (int k = 0; k < layout.group; k += kUnit) {
        const WideCodes some = wide_activations<Digits>(layout, codes + k);
        store(wide[i] + 2 * k, some.even);
        store(wide[i] + 2 * k + kUnit, some.odd);
      }
    }
    __m256i sums[N] = {};
    for (int k = 0; k < 2 * layout.group; k += 2 * kUnit) {
#pragma GCC unroll 1
      for (int four = 0; four < kUnit; four += 4, w += kUnit) {
        const __m256i rows = load(w);
        const __m256i even = _mm256_and_si256(rows, _mm256_set1_epi16(0xFF));
        const __m256i odd = _mm256_srli_epi16(rows, 8);
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          const std::byte* codes = wide[i] + k + four;
          sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(even, broadcast(codes)));
          sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(odd, broadcast(codes + kUnit)));
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      acc[i] = add_group(layout, panel, x + i * layout.row_bytes, g, sums[i], acc[i]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) _mm256_storeu_ps(y[i], acc[i]);
}

template <int Digits, int N>
Kernel tile_kernel(int bits) noexcept {
  return bits <= 4 ? tile<Digits, 8, N> : bits <= 6 ? tile<Digits, 2, N> : wide_tile<Digits, N>;
}

template <int Digits>
Kernel tile_kernel(int bits, std::int64_t n) noexcept {
  return n == 1   ? tile_kernel<Digits, 1>(bits)
         : n == 2 ? tile_kernel<Digits, 2>(bits)
         : n == 3 ? tile_kernel<Digits, 3>(bits)
                  : tile_kernel<Digits, 4>(bits);
}

// ---- all of it

Kernel kernel_for(const Q8Layout& layout, int bits, std::int64_t n) noexcept {
  if (layout.form == Q8Form::Tiles) {
    return layout.digits == 1 ? tile_kernel<1>(bits, n) : tile_kernel<2>(bits, n);
  }
  return layout.digits == 1 ? block_kernel<1>(bits, layout.group, n)
                            : block_kernel<2>(bits, layout.group, n);
}

// Rows of activations [begin, end) with the panel of n_rows rows that begins at `row` of the part.
void panel_products(const Q8Matmul& op, const Panel& panel, std::int64_t row, std::int64_t n_rows,
                    std::int64_t begin, std::int64_t end) noexcept {
  const Q8Layout& layout = *op.layout;
  const std::int64_t step = layout.form == Q8Form::Tiles ? kMaxTokens : Q8Layout::kBlockTokens;
  for (std::int64_t i = begin; i < end; i += step) {
    const std::int64_t n = end - i < step ? end - i : step;
    float y[kMaxTokens][kRows];
    kernel_for(layout, op.weight->format.bits, n)(layout, panel, op.x + i * layout.row_bytes, y);
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i + k] : i + k;
      std::memcpy(op.y + target * op.y_stride + row, y[k],
                  static_cast<std::size_t>(n_rows) * sizeof(float));
    }
  }
}

void matmul(const Q8Matmul& op) noexcept {
  const Q8Layout& layout = *op.layout;
  const WeightFormat& format = op.weight->format;
  const std::int64_t row_bytes = layout.cols * format.bits / 8;
  const std::int64_t plane_bytes = layout.n_groups * (format.scale_dtype == DType::F32 ? 4 : 2);
  const std::int64_t plane_floats = (layout.n_groups + 7) / 8 * 8 * kRows;
  const auto address = reinterpret_cast<std::uintptr_t>(op.scratch);
  float* scales = op.scratch + (kUnit - address % kUnit) % kUnit / sizeof(float);
  float* biases = scales + plane_floats;
  auto* codes = static_cast<std::byte*>(static_cast<void*>(biases + plane_floats));
  const std::int64_t fit = kCacheBytes / layout.row_bytes / kMaxTokens * kMaxTokens;
  const std::int64_t pass = fit > kMaxTokens ? fit : kMaxTokens;
  for (std::int64_t begin = 0; begin < op.n; begin += pass) {
    const std::int64_t end = begin + pass < op.n ? begin + pass : op.n;
    for (std::int64_t row = 0; row < op.n_rows; row += kRows) {
      Panel panel{.data = {}, .scales = scales, .biases = biases, .codes = codes};
      const std::byte *scale_rows[kRows], *bias_rows[kRows];
      for (std::int64_t r = 0; r < kRows; ++r) {
        const std::int64_t at = op.row + (row + r < op.n_rows ? row + r : op.n_rows - 1);
        panel.data[r] = op.weight->data + at * row_bytes;
        scale_rows[r] = op.weight->scales + at * plane_bytes;
        bias_rows[r] = op.weight->biases + at * plane_bytes;
      }
      turn_plane(format.scale_dtype, scale_rows, layout.n_groups, scales);
      turn_plane(format.scale_dtype, bias_rows, layout.n_groups, biases);
      if (layout.form == Q8Form::Tiles) pack(format.bits, panel, layout.cols, codes);
      panel_products(op, panel, row, op.n_rows - row < kRows ? op.n_rows - row : kRows, begin, end);
    }
  }
}

}  // namespace

const Q8Kernels& q8_avx2() {
  static constexpr Q8Kernels kKernels{.quantize = q8_quantize_avx2, .matmul = matmul};
  return kKernels;
}

}  // namespace moeflux::cpu

#endif
