// Lists of the rows of each expert, and the tiles that products of them are made of.
#include "backends/cuda/kernels/gpu.h"
#include "backends/cuda/kernels/products.h"

GPU_CODE_BEGIN
namespace moeflux::gpu {

namespace {
constexpr int kNoExpert = 1 << 30;
}

// A block for each expert. Its warps share the pairs out in runs, so that the list is in order.
GPU_KERNEL(list_pairs, ListPairsParams, 1024) {
  GPU_SHARED std::int32_t counts[2][32];  // of each warp: of this expert, of experts before it
  const int expert = block_x(), n_warps = n_threads() / kWarp;
  const int run = (p.n_pairs + n_warps * kWarp - 1) / (n_warps * kWarp) * kWarp;
  const int begin = warp() * run, end = begin + run < p.n_pairs ? begin + run : p.n_pairs;
  int own = 0, before = 0;
  for (int i = begin + lane(); i - lane() < end; i += kWarp) {
    int id = kNoExpert;
    if (i < end) id = p.ids[i];
    own += count_bits(ballot(id == expert));
    before += count_bits(ballot(id < expert));
  }
  if (lane() == 0) {
    counts[0][warp()] = own;
    counts[1][warp()] = before;
  }
  sync();
  int at = 0, n = 0;
  for (int w = 0; w < n_warps; ++w) {
    at += counts[1][w] + (w < warp() ? counts[0][w] : 0);
    n += counts[0][w];
  }
  // Places may lie in memory of the host, where reading takes long.
  const std::uint64_t* places = p.places + std::int64_t{expert} * kWordsOfExpert;
  if (thread() < kWordsOfExpert)
    p.places_here[expert * kWordsOfExpert + thread()] = places[thread()];
  if (thread() == 0) {
    p.counts[expert] = places[0] == kAbsentPlane ? 0 : n;
    p.begins[expert] = at;
  }
  for (int i = begin + lane(); i - lane() < end; i += kWarp) {
    const bool is_own = i < end && p.ids[i] == expert;
    const std::uint32_t mask = ballot(is_own);
    if (is_own) p.pairs[at + count_bits(mask & ((1u << lane()) - 1))] = i;
    at += count_bits(mask);
  }
}

// One block of one warp: lanes take experts one after the other.
GPU_KERNEL(list_tiles, ListPairsParams, 32) {
  int n_tiles = 0;
  for (int first = 0; first < p.n_experts; first += kWarp) {
    const int expert = first + lane();
    int own = 0, n = 0;
    if (expert < p.n_experts) {
      n = p.counts[expert];
      own = (n + p.rows_per_tile - 1) / p.rows_per_tile;
    }
    int up_to = own;  // and those of the lanes before
    GPU_UNROLL
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = shuffle(up_to, lane() >= step ? lane() - step : lane());
      if (lane() >= step) up_to += other;
    }
    RowTile* tiles = p.tiles + n_tiles + up_to - own;
    // Tiles of an expert have about as many rows each, in sixteens.
    const int each = own == 0 ? 0 : ((n + own - 1) / own + 15) / 16 * 16;
    for (int i = 0; i < own; ++i) {
      const int left = n - i * each;
      tiles[i] = {expert, p.begins[expert] + i * each, left < each ? left : each};
    }
    n_tiles += shuffle(up_to, kWarp - 1);
  }
  if (lane() == 0) *p.n_tiles = n_tiles;
}

}  // namespace moeflux::gpu
GPU_CODE_END
