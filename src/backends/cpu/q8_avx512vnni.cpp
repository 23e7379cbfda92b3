// Compiled for AVX-512 with VNNI; reached only through the table. Includes nothing that could be
// instantiated here and linked into code for other processors.
#if defined(__x86_64__)

#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/q8.h"
#include "quant/codec.h"

namespace moeflux::cpu {
namespace {

constexpr int kLanes = Q8Layout::kLanes;
constexpr int kBlock = Q8Layout::kBlockBytes;
constexpr int kMaxRows = 4, kMaxTokens = 4;

const void* at(const std::byte* base, std::int64_t offset) noexcept {
  return base + offset;
}
void* at(std::byte* base, std::int64_t offset) noexcept {
  return base + offset;
}

__mmask16 first_lanes(std::int64_t n) noexcept {
  return n >= kLanes ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << n) - 1);
}
__mmask64 first_bytes(std::int64_t n) noexcept {
  return n >= kBlock ? ~__mmask64{0} : (__mmask64{1} << n) - 1;
}

// The tree of the reference: 8, 4, 2, 1 lanes.
float sum_lanes(__m512 sum) noexcept {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// ---- activations

// 16 values as codes, in element order.
__m128i to_codes(__m512 x, __m512 inverse) noexcept {
  const __m512 limit = _mm512_set1_ps(127.0f);
  const __m512 scaled = _mm512_mul_ps(x, inverse);
  const __m512 cut =
      _mm512_max_ps(_mm512_min_ps(scaled, limit), _mm512_sub_ps(_mm512_setzero_ps(), limit));
  return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(cut));
}

void quantize(const Q8Layout& layout, const float* x, std::byte* out) noexcept {
  alignas(64) std::int8_t block[256];  // codes of a block in element order
  auto* scales = static_cast<float*>(at(out, layout.scales_at));
  auto* sums = static_cast<float*>(at(out, layout.sums_at));
  const __m512 magnitude = _mm512_castsi512_ps(_mm512_set1_epi32(0x7FFFFFFF));
  const __m512 infinity = _mm512_castsi512_ps(_mm512_set1_epi32(0x7F800000));
  const std::int64_t block_codes = layout.block_codes();
  const std::int64_t lanes_per_group = layout.group / layout.lane_codes();

  float scale = 0, inverse = 0;
  std::int32_t sum = 0;
  std::int64_t group_left = 0, g = 0;
  for (std::int64_t b = 0; b < layout.n_blocks; ++b) {
    const std::int64_t begin = b * block_codes;
    const std::int64_t count =
        layout.cols - begin < block_codes ? layout.cols - begin : block_codes;
    std::memset(block, 0, sizeof block);
    for (std::int64_t i = 0; i < count; i += 16) {
      if (group_left == 0) {  // every group begins at a multiple of 16
        const float* values = x + begin + i;
        __m512 largest = _mm512_setzero_ps();
        __mmask16 bad = 0;
        for (int k = 0; k < layout.group; k += 16) {
          const __m512 size = _mm512_and_ps(_mm512_loadu_ps(values + k), magnitude);
          bad |= _mm512_cmp_ps_mask(size, infinity, _CMP_NLT_UQ);
          largest = _mm512_max_ps(largest, size);
        }
        const float top = _mm512_reduce_max_ps(largest);
        scale = bad == 0 ? top / 127.0f : __builtin_nanf("");
        inverse = bad == 0 && top > 0 ? 127.0f / top : 0.0f;
        for (std::int64_t lane = 0; lane < lanes_per_group; ++lane) {
          scales[(begin + i) / layout.lane_codes() + lane] = scale;
        }
        group_left = layout.group;
        sum = 0;
      }
      const __m128i codes = scale == scale
                                ? to_codes(_mm512_loadu_ps(x + begin + i), _mm512_set1_ps(inverse))
                                : _mm_setzero_si128();
      _mm_store_si128(static_cast<__m128i*>(static_cast<void*>(block + i)), codes);
      sum += _mm512_reduce_add_epi32(_mm512_cvtepi8_epi32(codes));
      group_left -= 16;
      if (group_left == 0) sums[g++] = scale * static_cast<float>(sum);
    }
    // Element order to [step][byte].
    auto* target = static_cast<std::int8_t*>(at(out, begin));
    if (layout.steps == 1) {
      std::memcpy(target, block, kBlock);
    } else {
      for (int step = 0; step < layout.steps; ++step) {
        for (int i = 0; i < kBlock; ++i) target[step * kBlock + i] = block[i * layout.steps + step];
      }
    }
    for (std::int64_t lane = count / layout.lane_codes(); lane < kLanes; ++lane) {
      scales[b * kLanes + lane] = 0;
    }
  }
  while (g % kLanes != 0) sums[g++] = 0;
}

// ---- weights

// Scales or biases of a row as floats, then zeros: 16 may be read from any group on.
void load_plane(const WeightView& w, const std::byte* plane, std::int64_t row,
                std::int64_t n_groups, float* out) noexcept {
  if (w.format.scale_dtype == DType::F32) {
    std::memcpy(out, plane + row * n_groups * 4, static_cast<std::size_t>(n_groups) * 4);
  } else {
    const std::byte* halves = plane + row * n_groups * 2;
    for (std::int64_t g = 0; g < n_groups; g += kLanes) {
      const __mmask16 lanes = first_lanes(n_groups - g);
      const __m256i raw = _mm256_maskz_loadu_epi16(lanes, halves + g * 2);
      const __m512 values =
          w.format.scale_dtype == DType::F16
              ? _mm512_cvtph_ps(raw)
              : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
      _mm512_storeu_ps(out + g, values);
    }
  }
  std::memset(out + n_groups, 0, sizeof(float) * kLanes);
}

// Codes of 3, 5 or 6 bits, one per byte.
void spread_row(const std::byte* data, int bits, std::int64_t cols, std::byte* out) noexcept {
  const std::uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
  for (std::int64_t i = 0; i < cols; i += 8) {
    std::uint64_t packed = 0;
    std::memcpy(&packed, data + i * bits / 8, static_cast<std::size_t>(bits));
    const std::uint64_t codes = _pdep_u64(packed, mask);
    std::memcpy(out + i, &codes, 8);
  }
}

struct RowBlock {
  const std::byte* data[kMaxRows];
  const float* scales[kMaxRows];
  const float* biases[kMaxRows];
};

template <int Bits>
__m512i codes_of(__m512i packed, int step) noexcept {
  if constexpr (Bits == 8) {
    return packed;
  } else {
    const __m512i mask = _mm512_set1_epi8((1 << Bits) - 1);
    return _mm512_and_si512(_mm512_srli_epi16(packed, static_cast<unsigned>(step * Bits)), mask);
  }
}

// out[r * kMaxTokens + i] for R rows of weights and N rows of activations.
template <int Bits, int R, int N>
void tile(const Q8Layout& layout, const RowBlock& rows, const std::byte* x, float* out) noexcept {
  constexpr int kSteps = 8 / Bits;
  const std::int64_t row_bytes = layout.cols / kSteps;
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  const auto shift =
      static_cast<unsigned>(__builtin_ctz(static_cast<unsigned>(layout.group / (4 * kSteps))));
  const __m512i group_of_lane = _mm512_srlv_epi32(lane, _mm512_set1_epi32(static_cast<int>(shift)));

  __m512 acc[R][N];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < N; ++i) acc[r][i] = _mm512_setzero_ps();
  }
  const auto block = [&](std::int64_t b, __mmask64 bytes) __attribute__((always_inline)) {
    const std::int64_t first_group = b * kBlock * kSteps / layout.group;
    __m512i codes[R][kSteps];
    __m512 scales[R];
    for (int r = 0; r < R; ++r) {
      const __m512i packed = _mm512_maskz_loadu_epi8(bytes, rows.data[r] + b * kBlock);
      for (int step = 0; step < kSteps; ++step) codes[r][step] = codes_of<Bits>(packed, step);
      scales[r] =
          _mm512_permutexvar_ps(group_of_lane, _mm512_loadu_ps(rows.scales[r] + first_group));
    }
    for (int i = 0; i < N; ++i) {
      const std::byte* xi = x + i * layout.row_bytes;
      const __m512 x_scales = _mm512_load_ps(at(xi, layout.scales_at + b * kLanes * 4));
      for (int r = 0; r < R; ++r) {
        __m512i sum = _mm512_setzero_si512();
        for (int step = 0; step < kSteps; ++step) {
          sum = _mm512_dpbusd_epi32(sum, codes[r][step],
                                    _mm512_load_si512(at(xi, (b * kSteps + step) * kBlock)));
        }
        acc[r][i] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scales[r], x_scales), acc[r][i]);
      }
    }
  };
  const std::int64_t n_whole = row_bytes / kBlock;
  for (std::int64_t b = 0; b < n_whole; ++b) block(b, ~__mmask64{0});
  if (n_whole < layout.n_blocks) block(n_whole, first_bytes(row_bytes - n_whole * kBlock));

  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < N; ++i) {
      const std::byte* sums = x + i * layout.row_bytes + layout.sums_at;
      for (std::int64_t g = 0; g < layout.n_groups; g += kLanes) {
        acc[r][i] = _mm512_fmadd_ps(_mm512_loadu_ps(rows.biases[r] + g),
                                    _mm512_load_ps(at(sums, g * 4)), acc[r][i]);
      }
      out[r * kMaxTokens + i] = sum_lanes(acc[r][i]);
    }
  }
}

template <int Bits, int R>
void row_block(const Q8Matmul& op, const RowBlock& rows, std::int64_t first_row) noexcept {
  float out[kMaxRows * kMaxTokens];
  for (std::int64_t i = 0; i < op.n; i += kMaxTokens) {
    const std::int64_t n = op.n - i < kMaxTokens ? op.n - i : kMaxTokens;
    const std::byte* x = op.x + i * op.layout->row_bytes;
    switch (n) {
      case 1:
        tile<Bits, R, 1>(*op.layout, rows, x, out);
        break;
      case 2:
        tile<Bits, R, 2>(*op.layout, rows, x, out);
        break;
      case 3:
        tile<Bits, R, 3>(*op.layout, rows, x, out);
        break;
      default:
        tile<Bits, R, 4>(*op.layout, rows, x, out);
        break;
    }
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t target = op.rows_out != nullptr ? op.rows_out[i + k] : i + k;
      for (int r = 0; r < R; ++r) {
        op.y[target * op.y_stride + first_row - op.row + r] = out[r * kMaxTokens + k];
      }
    }
  }
}

template <int R>
void rows_of(const Q8Matmul& op, std::int64_t row) noexcept {
  const Q8Layout& layout = *op.layout;
  const WeightView& w = *op.weight;
  const std::int64_t plane_floats = layout.n_groups + 2 * kLanes;
  const std::int64_t data_bytes = layout.cols * w.format.bits / 8;
  std::byte* spread =
      static_cast<std::byte*>(static_cast<void*>(op.scratch + 2 * kMaxRows * plane_floats));
  RowBlock rows;
  for (int r = 0; r < R; ++r) {
    float* scales = op.scratch + 2 * r * plane_floats;
    load_plane(w, w.scales, row + r, layout.n_groups, scales);
    load_plane(w, w.biases, row + r, layout.n_groups, scales + plane_floats);
    rows.scales[r] = scales;
    rows.biases[r] = scales + plane_floats;
    rows.data[r] = w.data + (row + r) * data_bytes;
    if (layout.bits != w.format.bits) {
      std::byte* bytes = spread + r * (layout.n_blocks + 1) * kBlock;
      spread_row(rows.data[r], w.format.bits, layout.cols, bytes);
      rows.data[r] = bytes;
    }
  }
  switch (layout.bits) {
    case 2:
      return row_block<2, R>(op, rows, row);
    case 4:
      return row_block<4, R>(op, rows, row);
    default:
      return row_block<8, R>(op, rows, row);
  }
}

void matmul(const Q8Matmul& op) noexcept {
  const std::int64_t end = op.row + op.n_rows;
  std::int64_t row = op.row;
  for (; row + kMaxRows <= end; row += kMaxRows) rows_of<kMaxRows>(op, row);
  for (; row < end; ++row) rows_of<1>(op, row);
}

}  // namespace

const Q8Kernels& q8_avx512vnni() {
  static constexpr Q8Kernels kKernels{.quantize = quantize, .matmul = matmul};
  return kKernels;
}

const KernelTable& avx512vnni_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512_kernels();
    table.name = "avx512vnni";
    table.q8 = &q8_avx512vnni();
    return table;
  }();
  return kTable;
}

}  // namespace moeflux::cpu

#endif
