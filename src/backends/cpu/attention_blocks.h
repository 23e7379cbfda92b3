// Blocked attention: how queries and keys are cut, and how the parts are put together.
//
// Keys are taken in blocks of 128 positions that begin at multiples of 128. For one query, a block
// gives a part: the largest score, and the sums of weights and of weighted values relative to it.
// Parts are merged in order of position. A part depends on the query and the keys of its block
// alone, so it does not matter which queries share a tile, which thread computes which block, or
// how the tokens are split over calls: no bit changes. Nothing here grows with the context.
//
// A Kind says where queries, keys and values come from:
//
//   int d_value() const;
//   int most_queries() const;                          that share a pass over the keys
//   std::int64_t queries_size(int n) const;            floats for n gathered queries
//   void gather(const QueryTile&, float* queries) const;
//   std::int64_t memory_size() const;                  floats for its own use from load() on
//   KeyBlock load(const QueryTile&, const float* queries, std::int64_t position, int n_keys,
//                 float* memory) const;
//   // Raw scores of queries [first, first + n) into scores[query - first][kKeyBlock]; first is a
//   // multiple of kQueryPiece, n at most that.
//   void scores(const KeyBlock&, const float* queries, int first, int n, float* memory,
//               float* scores) const;
//   void finish(const QueryTile&, int query, const float* values, SoftmaxSum sum,
//               float* memory) const;
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "backends/cpu/attention_kernels.h"
#include "backends/cpu/grow.h"
#include "backends/cpu/kernels.h"
#include "base/thread_pool.h"

namespace moeflux::cpu {

inline constexpr int kKeyBlock = 128;
inline constexpr int kQueryPiece = 128;  // queries whose scores of a block lie in the cache
// Queries of a tile whose keys are multiplied out: the more, the less often that is done.
inline constexpr int kExpandedQueries = 2048;

// Queries that share keys: some heads of some tokens. Query j is that of head j % n_heads.
struct QueryTile {
  int group;  // of heads: which keys
  std::int64_t token, n_tokens;
  int head, n_heads;

  int size() const { return static_cast<int>(n_tokens) * n_heads; }
  std::int64_t token_of(int query) const { return token + query / n_heads; }
  int head_of(int query) const { return head + query % n_heads; }
};

// Cuts n tokens x n_groups x heads_per_group into tiles; later ones have more keys to see.
class QueryTiles {
 public:
  QueryTiles(std::int64_t n, int n_groups, int heads_per_group, int most)
      : n_(n),
        n_groups_(n_groups),
        heads_per_group_(heads_per_group),
        heads_(std::min(heads_per_group, most)),
        tokens_(std::min<std::int64_t>(std::max(most / heads_, 1), n)) {}

  std::int64_t count() const { return token_parts() * n_groups_ * head_parts(); }
  int most_queries() const { return static_cast<int>(tokens_) * heads_; }

  QueryTile operator[](std::int64_t i) const {
    const std::int64_t head_part = i % head_parts(), group = i / head_parts() % n_groups_;
    const std::int64_t token = i / (head_parts() * n_groups_) * tokens_;
    const int head = static_cast<int>(head_part) * heads_;
    return {.group = static_cast<int>(group),
            .token = token,
            .n_tokens = std::min(tokens_, n_ - token),
            .head = static_cast<int>(group) * heads_per_group_ + head,
            .n_heads = std::min(heads_, heads_per_group_ - head)};
  }

 private:
  std::int64_t token_parts() const { return (n_ + tokens_ - 1) / tokens_; }
  std::int64_t head_parts() const { return (heads_per_group_ + heads_ - 1) / heads_; }

  std::int64_t n_;
  int n_groups_, heads_per_group_, heads_;
  std::int64_t tokens_;
};

// Keys as their kind lays them out, and a row of values for each.
struct KeyBlock {
  const float* keys;
  const float* values;
  std::int64_t value_stride;
  int n_keys;
};

// What a block, or all blocks so far, have given for each query of a tile.
struct AttentionPart {
  SoftmaxSum* sums;
  float* values;  // [queries][d_value]
};

template <class Kind>
class BlockedAttention {
 public:
  struct Shape {
    int n_groups, heads_per_group;
    std::int64_t n, first_position;  // of the new tokens
    float scale;
    int window = 0;  // positions a token sees, itself included; 0: all
  };

  BlockedAttention(const Kind& kind, const Shape& shape, const AttentionKernels& kernels)
      : kind_(kind), shape_(shape), kernels_(kernels) {}

  // scratch(worker, n): n floats for each thread. shared: memory for all of them, kept between
  // calls.
  template <class Scratch>
  void run(ThreadPool& pool, const Scratch& scratch, std::vector<float>& shared) const {
    if (shape_.n == 0) return;
    const QueryTiles tiles = cut(pool.size());
    const std::int64_t n_blocks = blocks_before(shape_.first_position + shape_.n);
    if (tiles.count() >= pool.size() || n_blocks == 1) {
      pool.parallel_for(tiles.count(), 1, [&](std::int64_t i, std::int64_t, int worker) {
        const QueryTile tile = tiles[tiles.count() - 1 - i];  // the longest first
        run_tile(tile, Memory(*this, tile.size(), scratch, worker));
      });
    } else {
      run_split(tiles, n_blocks, pool, scratch, shared);
    }
  }

 private:
  // The scratch of one thread for tiles of n queries, each part on cache lines of its own.
  struct Memory {
    template <class Scratch>
    Memory(const BlockedAttention& a, int n, const Scratch& scratch, int worker) {
      const int piece = std::min(n, kQueryPiece);
      const std::int64_t sizes[] = {a.kind_.queries_size(n), std::int64_t{piece} * kKeyBlock,
                                    a.kind_.memory_size(), part_size(a, piece), part_size(a, n)};
      std::int64_t total = kLine;
      for (const std::int64_t size : sizes) total += padded(size);
      float* at = aligned(scratch(worker, total));
      float** const parts[] = {&queries, &scores, &of_kind, &block, &sum};
      for (std::size_t i = 0; i < std::size(sizes); ++i) {
        *parts[i] = at;
        at += padded(sizes[i]);
      }
    }
    float *queries, *scores, *of_kind, *block, *sum;
  };

  static constexpr std::int64_t kLine = 16;  // floats
  static std::int64_t padded(std::int64_t n) { return (n + kLine - 1) / kLine * kLine; }
  static float* aligned(float* x) {
    const auto address = reinterpret_cast<std::uintptr_t>(x);
    return x + (64 - address % 64) % 64 / sizeof(float);
  }
  // Values first, so that they are aligned.
  static std::int64_t part_size(const BlockedAttention& a, int n) {
    return padded(std::int64_t{n} * a.kind_.d_value()) + padded(2 * n);
  }
  AttentionPart part(float* memory, int n) const {
    float* sums = memory + padded(std::int64_t{n} * kind_.d_value());
    return {static_cast<SoftmaxSum*>(static_cast<void*>(sums)), memory};
  }
  static std::int64_t blocks_before(std::int64_t position) {
    return (position + kKeyBlock - 1) / kKeyBlock;
  }
  std::int64_t length_of(const QueryTile& tile) const {  // of its last token
    return shape_.first_position + tile.token + tile.n_tokens;
  }
  // Keys of a block that a query may see.
  int visible(const QueryTile& tile, int query, std::int64_t block) const {
    const std::int64_t n = shape_.first_position + tile.token_of(query) + 1 - block * kKeyBlock;
    return static_cast<int>(std::clamp<std::int64_t>(n, 0, kKeyBlock));
  }

  // Of the keys of a block, those before the query's window; at most those it may see.
  int hidden(const QueryTile& tile, int query, std::int64_t block) const {
    if (shape_.window == 0) return 0;
    const std::int64_t n =
        shape_.first_position + tile.token_of(query) + 1 - shape_.window - block * kKeyBlock;
    return static_cast<int>(std::clamp<std::int64_t>(n, 0, kKeyBlock));
  }
  // The first block that a token sees something of.
  std::int64_t first_block(std::int64_t token) const {
    if (shape_.window == 0) return 0;
    return std::max<std::int64_t>(shape_.first_position + token + 1 - shape_.window, 0) / kKeyBlock;
  }

  // Large tiles read keys less often, small ones keep more threads busy.
  QueryTiles cut(int n_threads) const {
    constexpr int kLeast = 16;
    for (int most = kind_.most_queries(); most > kLeast; most /= 2) {
      const QueryTiles tiles(shape_.n, shape_.n_groups, shape_.heads_per_group, most);
      if (tiles.count() >= 2 * n_threads) return tiles;
    }
    return {shape_.n, shape_.n_groups, shape_.heads_per_group, kLeast};
  }

  KeyBlock load(const QueryTile& tile, std::int64_t block, const Memory& memory) const {
    const std::int64_t first = block * kKeyBlock;
    const int n_keys = static_cast<int>(std::min<std::int64_t>(kKeyBlock, length_of(tile) - first));
    return kind_.load(tile, memory.queries, first, n_keys, memory.of_kind);
  }

  // What a block gives for queries [first, last), of which the last sees some of its keys.
  void compute(const QueryTile& tile, std::int64_t block, const KeyBlock& keys, int first, int last,
               const Memory& memory, const AttentionPart& out) const {
    kind_.scores(keys, memory.queries, first, last - first, memory.of_kind, memory.scores);
    const int d = kind_.d_value();
    std::fill_n(out.values, std::int64_t{last - first} * d, 0.0f);
    for (int begin = first; begin < last;) {
      float* weights = memory.scores + (begin - first) * kKeyBlock;
      const int n = visible(tile, begin, block);
      const int n_hidden = hidden(tile, begin, block);
      int end = begin;
      for (; end < last && visible(tile, end, block) == n && hidden(tile, end, block) == n_hidden;
           ++end) {
        float* of_query = weights + (end - begin) * kKeyBlock;
        std::fill_n(of_query, n_hidden, -std::numeric_limits<float>::infinity());
        out.sums[end - first] =
            n > n_hidden ? kernels_.softmax(of_query, n, shape_.scale) : SoftmaxSum{};
      }
      // Without the hidden keys: a weight of zero would not hide a NaN.
      kernels_.weighted_rows({.weights = weights + n_hidden,
                              .weight_stride = kKeyBlock,
                              .n_queries = end - begin,
                              .rows = keys.values + n_hidden * keys.value_stride,
                              .row_stride = keys.value_stride,
                              .n_rows = n - n_hidden,
                              .d = d,
                              .out = out.values + std::int64_t{begin - first} * d,
                              .out_stride = d});
      begin = end;
    }
  }

  // Calls piece(first, last) for the queries of a tile, without those that see nothing of a block.
  template <class Piece>
  void for_pieces(const QueryTile& tile, std::int64_t block, const Piece& piece) const {
    for (int first = 0; first < tile.size(); first += kQueryPiece) {
      const int last = std::min(first + kQueryPiece, tile.size());
      if (visible(tile, last - 1, block) > 0) piece(first, last);
    }
  }

  void clear(const AttentionPart& part, int n) const {
    std::fill_n(part.sums, n, SoftmaxSum{});
    std::fill_n(part.values, std::int64_t{n} * kind_.d_value(), 0.0f);
  }

  AttentionPart from(const AttentionPart& part, int query) const {
    return {part.sums + query, part.values + std::int64_t{query} * kind_.d_value()};
  }

  void merge(const AttentionPart& total, const AttentionPart& block) const {
    kernels_.merge(*total.sums, total.values, *block.sums, block.values, kind_.d_value());
  }

  void run_tile(const QueryTile& tile, const Memory& memory) const {
    const int n = tile.size();
    const AttentionPart block = part(memory.block, std::min(n, kQueryPiece));
    const AttentionPart sum = part(memory.sum, n);
    kind_.gather(tile, memory.queries);
    clear(sum, n);
    for (std::int64_t b = first_block(tile.token); b < blocks_before(length_of(tile)); ++b) {
      const KeyBlock keys = load(tile, b, memory);
      for_pieces(tile, b, [&](int first, int last) {
        compute(tile, b, keys, first, last, memory, block);
        for (int query = first; query < last; ++query)
          merge(from(sum, query), from(block, query - first));
      });
    }
    for (int query = 0; query < n; ++query) finish(tile, query, sum, memory.of_kind);
  }

  void finish(const QueryTile& tile, int query, const AttentionPart& sum, float* memory) const {
    kind_.finish(tile, query, sum.values + std::int64_t{query} * kind_.d_value(), sum.sums[query],
                 memory);
  }

  // Few queries: blocks in parallel, as many at a time as keep the threads busy; their parts are
  // merged in order.
  template <class Scratch>
  void run_split(const QueryTiles& tiles, std::int64_t n_blocks, ThreadPool& pool,
                 const Scratch& scratch, std::vector<float>& shared) const {
    constexpr std::int64_t kBlocksPerThread = 8;
    const std::int64_t n_tiles = tiles.count(), first_of_all = first_block(0);
    const std::int64_t wave = std::clamp<std::int64_t>(
        (kBlocksPerThread * pool.size() + n_tiles - 1) / n_tiles, 1, n_blocks - first_of_all);
    const int most = tiles.most_queries();
    const std::int64_t size = part_size(*this, most);
    // [wave][tile], then the sums: [tile]
    float* parts =
        aligned(grown(shared, static_cast<std::size_t>((wave + 1) * n_tiles * size + kLine)));
    const auto part_of = [&](std::int64_t in_wave, std::int64_t tile) {
      return part(parts + (in_wave * n_tiles + tile) * size, most);
    };
    for (std::int64_t i = 0; i < n_tiles; ++i) clear(part_of(wave, i), most);
    for (std::int64_t begin = first_of_all; begin < n_blocks; begin += wave) {
      const std::int64_t n = std::min(wave, n_blocks - begin);
      pool.parallel_for(n * n_tiles, 1, [&](std::int64_t task, std::int64_t, int worker) {
        const std::int64_t b = task / n_tiles, i = task % n_tiles;
        const QueryTile tile = tiles[i];
        const Memory memory(*this, most, scratch, worker);
        kind_.gather(tile, memory.queries);
        clear(part_of(b, i), tile.size());
        if (begin + b >= blocks_before(length_of(tile))) return;
        const KeyBlock keys = load(tile, begin + b, memory);
        for_pieces(tile, begin + b, [&](int first, int last) {
          compute(tile, begin + b, keys, first, last, memory, from(part_of(b, i), first));
        });
      });
      pool.parallel_for(n_tiles * most, 1, [&](std::int64_t task, std::int64_t, int worker) {
        const std::int64_t i = task / most;
        const int query = static_cast<int>(task % most);
        const QueryTile tile = tiles[i];
        if (query >= tile.size()) return;
        for (std::int64_t b = 0; b < n; ++b)
          merge(from(part_of(wave, i), query), from(part_of(b, i), query));
        if (begin + n == n_blocks)
          finish(tile, query, part_of(wave, i), Memory(*this, most, scratch, worker).of_kind);
      });
    }
  }

  const Kind kind_;
  const Shape shape_;
  const AttentionKernels& kernels_;
};

}  // namespace moeflux::cpu
