// The fast path for AVX2 with FMA and F16C: products with tiles (quant/interleave.h). Reached only
// through the table. Includes nothing that could be instantiated here and linked into code for
// other processors.
//
// Eight rows of a tile are the lanes of a register: four activations, in all lanes, times a
// register of codes advance 8 products at once. Products of bytes are added in 16 bits as long as
// they fit, then in 32.
#if defined(__x86_64__)

#include "backends/cpu/rounded_avx2.h"

#include <type_traits>

#include "backends/cpu/rounded_blocks_avx2.h"

namespace moeflux::cpu {

void rounded_quantize_avx2(const RoundedLayout& layout, const float* x, std::byte* out) noexcept;

namespace {

// Products of a group with N rows of activations.
template <class Codes, int Digits, int N>
class Group {
 public:
  Group(const RoundedLayout& layout, const std::byte* x) noexcept : layout_(layout), x_(x) {}

  // Adds those of codes [c, c + 32) of `Halves` times 8 rows.
  template <int Halves>
  void add(const std::byte* piece, int c, __m256i (&sums)[Halves][N]) const noexcept {
#pragma GCC unroll 8
    for (int k = 0; k < kFours; k += Codes::kRun) add_run(piece, x_ + c, k, sums);
  }

  // As many as fit into 16 bits.
  template <int Halves>
  void add_run(const std::byte* piece, const std::byte* x, int first,
               __m256i (&sums)[Halves][N]) const noexcept {
    __m256i run[Digits][Halves][N] = {};
#pragma GCC unroll 8
    for (int k = first; k < first + Codes::kRun; ++k) {
#pragma GCC unroll 2
      for (int h = 0; h < Halves; ++h) {
        const __m256i codes = Codes::four(piece + h * kHalf, k);
        // One sum after the other: any other order needs more registers than there are.
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
#pragma GCC unroll 2
          for (int d = 0; d < Digits; ++d) {
            const std::byte* four = x + 4 * k + d * layout_.low_at + i * layout_.row_bytes;
            const __m256i pairs = _mm256_maddubs_epi16(codes, in_all_lanes(four));
            run[d][h][i] = _mm256_add_epi16(run[d][h][i], pairs);
            asm volatile("" : "+x"(run[d][h][i]));
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int k = 0; k < Digits * Halves * N; ++k) {
      const int d = k / (Halves * N), h = k / N % Halves, i = k % N;
      const short worth = d == Digits - 1 ? 1 : 256;
      const __m256i fours = _mm256_madd_epi16(run[d][h][i], _mm256_set1_epi16(worth));
      sums[h][i] = _mm256_add_epi32(sums[h][i], fours);
    }
  }

 private:
  const RoundedLayout& layout_;
  const std::byte* x_;
};

// Products of codes of 8 bits do not fit: they are made of 16-bit numbers, whatever the digits.
template <int Digits, int N>
class Group<Packed<8>, Digits, N> {
 public:
  Group(const RoundedLayout& layout, const std::byte* x) noexcept {
    for (int i = 0; i < N; ++i, x += layout.row_bytes) {
      for (int c = 0; c < layout.group; c += kPiece) {
        const __m256i last = load(x + (Digits == 2 ? layout.low_at : 0) + c);
        __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(last, 8), 8);
        __m256i odd = _mm256_srai_epi16(last, 8);
        if constexpr (Digits == 2) {
          const __m256i high = load(x + c);
          even = _mm256_add_epi16(even, _mm256_slli_epi16(high, 8));
          odd = _mm256_add_epi16(odd, _mm256_and_si256(high, _mm256_set1_epi16(-256)));
        }
        store(x_[i] + 2 * c, even);
        store(x_[i] + 2 * c + kHalf, odd);
      }
    }
  }

  template <int Halves>
  void add(const std::byte* piece, int c, __m256i (&sums)[Halves][N]) const noexcept {
#pragma GCC unroll 2
    for (int k = 0; k < kFours; ++k) {
#pragma GCC unroll 2
      for (int h = 0; h < Halves; ++h) {
        const __m256i codes = Packed<8>::four(piece + h * kHalf, k);
        const __m256i even = _mm256_and_si256(codes, _mm256_set1_epi16(0xFF));
        const __m256i odd = _mm256_srli_epi16(codes, 8);
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          const __m256i evens = in_all_lanes(x_[i] + 2 * c + 4 * k);
          const __m256i odds = in_all_lanes(x_[i] + 2 * c + kHalf + 4 * k);
          sums[h][i] = _mm256_add_epi32(sums[h][i], _mm256_madd_epi16(even, evens));
          sums[h][i] = _mm256_add_epi32(sums[h][i], _mm256_madd_epi16(odd, odds));
        }
      }
    }
  }

 private:
  // For every piece, numbers at even and then those at odd places.
  alignas(kHalf) std::byte x_[N][2 * RoundedLayout::kMaxGroup];
};

// acc of 8 rows, one group further.
__m256 add_group(const RoundedLayout& layout, __m256 acc, __m256i sums, __m256 scales,
                 __m256 biases, const std::byte* x, std::int64_t g) noexcept {
  const float x_scale = static_cast<const float*>(at(x, layout.scales_at))[g];
  const float x_sum = static_cast<const float*>(at(x, layout.sums_at))[g];
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(scales, _mm256_set1_ps(x_scale)),
                        acc);
  return _mm256_fmadd_ps(biases, _mm256_set1_ps(x_sum), acc);
}

template <class Codes, int Digits, int N>
void multiply(const RoundedLayout& layout, const RoundedTile& tile, const WeightFormat& format,
              const std::byte* x, float (*y)[kTileRows]) noexcept {
  constexpr int kHalves = N == 1 ? 2 : 1;  // at once: as many as there are registers for
  __m256 acc[2][N];
#pragma GCC unroll 8
  for (int k = 0; k < 2 * N; ++k) acc[k / N][k % N] = _mm256_setzero_ps();
  const std::byte* piece = tile.codes;
  for (std::int64_t g = 0; g < layout.n_groups; ++g) {
    const Group<Codes, Digits, N> group(layout, x + g * layout.group);
    const std::byte* first = piece;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half += kHalves) {
      __m256i sums[kHalves][N] = {};
      piece = first;
      for (int c = 0; c < layout.group; c += kPiece, piece += Codes::kPieceBytes) {
        group.add(piece + half * kHalf, c, sums);
        if (half == 0) prefetch<Codes::kPieceBytes>(piece);
      }
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        const __m256 scales = load_scales(format.scale_dtype, tile.scales, g, half + h);
        const __m256 biases = load_biases(format, tile, g, half + h, scales);
#pragma GCC unroll 4
        for (int i = 0; i < N; ++i) {
          acc[half + h][i] = add_group(layout, acc[half + h][i], sums[h][i], scales, biases,
                                       x + i * layout.row_bytes, g);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < 2 * N; ++k) _mm256_storeu_ps(y[k % N] + k / N * 8, acc[k / N][k % N]);
}

std::int64_t scale_size(DType dtype) noexcept {
  if (dtype == DType::U8 || dtype == DType::F8E4M3) return 1;
  return dtype == DType::F32 ? 4 : 2;
}

// Groups of centered weights: their columns and how scales are loaded, or (0) as the weight says.
template <int Columns>
struct CenteredGroups {
  static int cols(const RoundedLayout& layout) noexcept {
    return Columns != 0 ? Columns : layout.weight_group;
  }
  static __m256 scales(DType dtype, const std::byte* plane, int half) noexcept {
    if constexpr (Columns == 16) return load_e4m3(plane + half * 8);
    if constexpr (Columns == 32) return load_e8m0(plane + half * 8);
    return load_scales(dtype, plane, 0, half);
  }
};

// Sums of n groups of centered weights that share one of the activations, as floats. x, the starts
// of sums, codes and scales are those of the first.
template <class Groups, class Codes, int Digits, int N, int Halves>
void add_parts(const RoundedLayout& layout, DType dtype, const std::byte* x,
               const std::byte* starts, const std::byte* piece, const std::byte* scales,
               std::int64_t n, int half, __m256 (&parts)[Halves][N]) noexcept {
  constexpr int kStep = 4 * Codes::kRun;
  const int cols = Groups::cols(layout);
  const std::int64_t scale_bytes = kTileRows * scale_size(dtype);
  const Group<Codes, Digits, N> group(layout, x);
  for (std::int64_t g = 0; g < n; ++g, starts += 4, scales += scale_bytes) {
    __m256i sums[Halves][N];
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const __m256i start = in_all_lanes(starts + i * layout.row_bytes);
#pragma GCC unroll 2
      for (int h = 0; h < Halves; ++h) sums[h][i] = start;
    }
#pragma GCC unroll 2
    for (int c = 0; c < cols; c += kStep, x += kStep, piece += Codes::kPieceBytes) {
      group.add_run(piece + half * kHalf, x, 0, sums);
      if (Codes::kFromMemory && half == 0) prefetch<Codes::kPieceBytes>(piece);
    }
#pragma GCC unroll 2
    for (int h = 0; h < Halves; ++h) {
      const __m256 scale = Groups::scales(dtype, scales, half + h);
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i)
        parts[h][i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[h][i]), scale, parts[h][i]);
    }
  }
}

template <class Groups, class Codes, int Digits, int N>
void multiply_groups(const RoundedLayout& layout, const RoundedTile& tile, DType dtype,
                     const std::byte* x, float (*y)[kTileRows]) noexcept {
  static_assert(Codes::kRun == Codes::kPieceFours);
  constexpr int kHalves = N == 1 ? 2 : 1;
  __m256 acc[2][N];
#pragma GCC unroll 8
  for (int k = 0; k < 2 * N; ++k) acc[k / N][k % N] = _mm256_setzero_ps();
  const std::int64_t per_group = layout.group / Groups::cols(layout);
  const std::int64_t group_bytes = layout.group / (4 * Codes::kPieceFours) * Codes::kPieceBytes;
  const std::int64_t scale_bytes = per_group * kTileRows * scale_size(dtype);
  for (std::int64_t group = 0; group < layout.n_groups; ++group) {
    const std::int64_t left = layout.n_weight_groups - group * per_group;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half += kHalves) {
      __m256 parts[kHalves][N];
#pragma GCC unroll 4
      for (int k = 0; k < kHalves * N; ++k) parts[k / N][k % N] = _mm256_setzero_ps();
      add_parts<Groups, Codes, Digits, N, kHalves>(
          layout, dtype, x + group * layout.group, x + layout.sums_at + group * per_group * 4,
          tile.codes + group * group_bytes, tile.scales + group * scale_bytes,
          left < per_group ? left : per_group, half, parts);
#pragma GCC unroll 8
      for (int k = 0; k < kHalves * N; ++k) {
        const std::byte* scale = x + k % N * layout.row_bytes + layout.scales_at + group * 4;
        __m256& sum = acc[half + k / N][k % N];
        sum = _mm256_fmadd_ps(parts[k / N][k % N], _mm256_castsi256_ps(in_all_lanes(scale)), sum);
      }
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < 2 * N; ++k) _mm256_storeu_ps(y[k % N] + k / N * 8, acc[k / N][k % N]);
}

template <class Codes, int Digits, int N>
void multiply_centered(const RoundedLayout& layout, const RoundedTile& tile,
                       const WeightFormat& format, const std::byte* x,
                       float (*y)[kTileRows]) noexcept {
  const DType dtype = format.scale_dtype;
  if constexpr (!std::is_same_v<Codes, Packed<4>>) {
    if (format.group == 16 && dtype == DType::F8E4M3)
      return multiply_groups<CenteredGroups<16>, Codes, Digits, N>(layout, tile, dtype, x, y);
    if (format.group == 32 && dtype == DType::U8)
      return multiply_groups<CenteredGroups<32>, Codes, Digits, N>(layout, tile, dtype, x, y);
  }
  multiply_groups<CenteredGroups<0>, Codes, Digits, N>(layout, tile, dtype, x, y);
}

struct Avx2 {
  template <int Bits>
  using Packed = cpu::Packed<Bits>;
  using PackedFp4 = cpu::PackedFp4;
  using PackedInt4 = cpu::Packed<4>;
  template <class Codes>
  using Opened = cpu::Opened<Codes>;

  template <class Codes>
  static void open(const std::byte* from, std::int64_t cols, std::byte* to) noexcept {
    open_tile<Codes>(from, cols, to);
  }
  template <class Codes, int Digits, int N>
  static constexpr Kernel multiply = cpu::multiply<Codes, Digits, N>;
  template <class Codes, int Digits, int N>
  static constexpr Kernel multiply_centered = cpu::multiply_centered<Codes, Digits, N>;

  using Halves = HalvesAvx2;
  template <class Kind>
  using BlockCodes =
      std::conditional_t<Kind::kTable == CodeTable::None, SpanCodes<Kind::kLow, Kind::kHigh>,
                         SpanChosen<Kind::kTable>>;
  template <class Kind, int>
  using OpenedBlocks = SpanOpened<BlockCodes<Kind>::kRun>;
  // Codes up to 126: one sum of two products fits. With two digits, numbers of 16 bits are faster.
  template <int Digits>
  using OpenedWholeBlocks = SpanOpened<Digits == 1 ? 1 : 0>;

  template <class Codes>
  static void open_span(const std::byte* from, std::byte* to) noexcept {
    prefetch<Codes::kLines * kLine>(from);
    for (int half = 0; half < kLine; half += kHalf) {
#pragma GCC unroll 8
      for (int k = 0; k < kFours; ++k) store(to + k * kLine + half, Codes::four(from + half, k));
    }
  }
  template <class Codes, int Group, bool Biased, int Digits, int N>
  static constexpr Kernel multiply_blocks = cpu::multiply_blocks<Codes, Group, Biased, Digits, N>;
};

}  // namespace

const RoundedKernels& rounded_avx2() {
  static constexpr RoundedKernels kKernels{.quantize = rounded_quantize_avx2,
                                           .matmul = matmul<Avx2>};
  return kKernels;
}

}  // namespace moeflux::cpu

#endif
