// The fast path for processors with AMX: weights are multiplied by the tile unit, 16 rows of
// activations at a time. Reached only through the table, and only when the system lets this process
// use tiles (kernels.cpp asks).
#if defined(__x86_64__)

#include <array>
#include <utility>

#include "backends/cpu/kernels.h"
#include "backends/cpu/rounded_centered_avx512.h"

namespace moeflux::cpu {
namespace {

constexpr int kTileRows = 16;

// The registers; the instructions take nothing but literal numbers. Sums of high and low digits: 0
// and 1; activations: 2 and 3; weights: 4.

struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  // For n rows of activations and products over `codes` codes, 32 or 64.
  TileShapes(int n, int codes) noexcept {
    for (const int sums : {0, 1}) {
      rows[sums] = static_cast<std::uint8_t>(n);
      row_bytes[sums] = 64;
    }
    for (const int activations : {2, 3}) {
      rows[activations] = static_cast<std::uint8_t>(n);
      row_bytes[activations] = static_cast<std::uint16_t>(codes);
    }
    rows[4] = static_cast<std::uint8_t>(codes / 4);
    row_bytes[4] = 64;
  }
};

struct Sums {
  alignas(64) std::int32_t high[kTileRows][kTileRows];
  alignas(64) std::int32_t low[kTileRows][kTileRows];
};

// The sums of group g of the weight, of all rows of a tile.
template <int Digits>
void sum_group(const RoundedLayout& layout, const std::byte* codes, const std::byte* x,
               std::int64_t g, Sums& out) noexcept {
  const std::int64_t first = g * layout.weight_group;
  const std::int64_t step = layout.weight_group < 64 ? layout.weight_group : 64;
  _tile_zero(0);
  if (Digits == 2) _tile_zero(1);
  for (std::int64_t c = first; c < first + layout.weight_group; c += step) {
    _tile_loadd(4, codes + c * kTileRows, 64);
    _tile_loadd(2, x + c, layout.row_bytes);
    _tile_dpbsud(0, 2, 4);
    if (Digits == 2) {
      _tile_loadd(3, x + layout.low_at + c, layout.row_bytes);
      _tile_dpbsud(1, 3, 4);
    }
  }
  _tile_stored(0, out.high, 64);
  if (Digits == 2) _tile_stored(1, out.low, 64);
}

// A tile of N rows of activations; as a constant, so that their results stay in registers.
template <RoundedSums Kind, int Digits, int N>
void multiply_tile(const RoundedMatmul& op, const OpenTile& weights, std::int64_t row,
                   std::int64_t n_rows, std::int64_t first) noexcept {
  constexpr bool kInParts = Kind != RoundedSums::Scaled;
  const RoundedLayout& layout = *op.layout;
  const std::int64_t per_group = layout.group / layout.weight_group;
  const std::byte* x = op.x + first * layout.row_bytes;
  __m512 acc[N], part[kInParts ? N : 1];
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) acc[i] = part[kInParts ? i : 0] = _mm512_setzero_ps();
  const auto add = [&](const Sums& sums, std::int64_t g) __attribute__((always_inline)) {
    const __m512 scales = weights.scales(g), biases = weights.biases(g);
    const bool completes = (g + 1) % per_group == 0 || g + 1 == layout.n_weight_groups;
    const std::byte* xi = x;
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i, xi += layout.row_bytes) {
      __m512i sum = _mm512_load_si512(sums.high[i]);
      if (Digits == 2) {
        sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), _mm512_load_si512(sums.low[i]));
      }
      if constexpr (kInParts) {
        if (Kind == RoundedSums::Starts)
          sum = _mm512_add_epi32(sum, _mm512_set1_epi32(starts(layout, xi)[g]));
        part[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scales, part[i]);
        if (Kind == RoundedSums::Plain)
          part[i] = _mm512_fmadd_ps(biases, _mm512_set1_ps(plain_sums(layout, xi)[g]), part[i]);
        if (!completes) continue;
        acc[i] = add_part(layout, acc[i], part[i], xi, g / per_group);
        part[i] = _mm512_setzero_ps();
      } else {
        acc[i] = add_group(layout, acc[i], sum, scales, biases, xi, g);
      }
    }
  };
  // A group behind, so that the tile unit works meanwhile.
  Sums sums[2];
  sum_group<Digits>(layout, weights.codes(), x, 0, sums[0]);
  for (std::int64_t g = 1; g < layout.n_weight_groups; ++g) {
    sum_group<Digits>(layout, weights.codes(), x, g, sums[g % 2]);
    add(sums[(g - 1) % 2], g - 1);
  }
  add(sums[(layout.n_weight_groups - 1) % 2], layout.n_weight_groups - 1);
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) {
    if constexpr (kInParts) acc[i] = _mm512_mul_ps(acc[i], _mm512_load_ps(weights.factors.rows));
    _mm512_mask_storeu_ps(row_of_y(op, first + i, row), first_lanes(n_rows), acc[i]);
  }
}

template <RoundedSums Kind, int Digits, int... Counts>
constexpr auto tile_functions(std::integer_sequence<int, Counts...>) {
  return std::array{multiply_tile<Kind, Digits, Counts + 1>...};
}

template <RoundedSums Kind, int Digits>
void multiply_tiles(const RoundedMatmul& op, const OpenTile& weights, std::int64_t row,
                    std::int64_t n_rows, std::int64_t begin, std::int64_t end) noexcept {
  static constexpr auto kBySize =
      tile_functions<Kind, Digits>(std::make_integer_sequence<int, kTileRows>());
  const int group = op.layout->weight_group;
  const std::int64_t n_parts = (end - begin + kTileRows - 1) / kTileRows;
  std::int64_t configured = 0;
  for (std::int64_t part = 0, i = begin; part < n_parts; ++part) {
    const std::int64_t n = (end - i + n_parts - part - 1) / (n_parts - part);
    if (n != configured) {
      const TileShapes shapes(static_cast<int>(n), group < 64 ? group : 64);
      _tile_loadconfig(&shapes);
      configured = n;
    }
    kBySize[static_cast<std::size_t>(n - 1)](op, weights, row, n_rows, i);
    i += n;
  }
  _tile_release();
}

template <RoundedSums Kind>
void many_rows_in_tiles(const RoundedMatmul& op) noexcept {
  many_rows(op, op.layout->digits == 1 ? multiply_tiles<Kind, 1> : multiply_tiles<Kind, 2>);
}

// Groups of 16 would leave most of the tile unit idle.
void matmul(const RoundedMatmul& op) noexcept {
  if (op.n <= kFew || op.layout->weight_group < 32) return rounded_avx512vnni().matmul(op);
  switch (op.layout->sums) {
    case RoundedSums::Scaled:
      return many_rows_in_tiles<RoundedSums::Scaled>(op);
    case RoundedSums::Starts:
      return many_rows_in_tiles<RoundedSums::Starts>(op);
    case RoundedSums::Plain:
      return many_rows_in_tiles<RoundedSums::Plain>(op);
  }
}

}  // namespace

const RoundedKernels& rounded_amx() {
  static constexpr RoundedKernels kKernels{.quantize = rounded_quantize_avx512, .matmul = matmul};
  return kKernels;
}

const KernelTable& amx_kernels() {
  static const KernelTable kTable = [] {
    KernelTable table = avx512vnni_kernels();
    table.name = "amx";
    table.rounded = &rounded_amx();
    return table;
  }();
  return kTable;
}

}  // namespace moeflux::cpu

#endif
