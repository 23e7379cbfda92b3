// The two kinds of attention, over the cache in blocks (attention_blocks.h). Heads that share keys
// go together, and so do neighbouring tokens: keys are read, and decoded, once for all of them.
#include <algorithm>

#include "backends/cpu/attention_blocks.h"
#include "backends/cpu/cpu_backend.h"
#include "base/error.h"

namespace moeflux::cpu {
namespace {

// Rows of a cache as floats, packed in the layout of the cache: where they are, or decoded into
// `memory`. In tiles, n is rounded up to whole ones.
const float* decode(const KernelTable& kernels, const KvView& cache, int head,
                    std::int64_t position, int n, float* memory) {
  const std::byte* from = cache.at(head, position);
  const bool tiled = cache.shape.layout == KvLayout::Tiles;
  const std::int64_t n_tiles = (n + kKvLanes - 1) / kKvLanes;
  const int d = cache.shape.d;
  WeightView values{.format = {.kind = WeightKind::F16},
                    .rows = 1,
                    .cols = (tiled ? n_tiles * kKvLanes : n) * d,
                    .data = from,
                    .scales = nullptr,
                    .biases = nullptr};
  switch (cache.shape.type) {
    case KvType::F32:
      return static_cast<const float*>(static_cast<const void*>(from));
    case KvType::BF16:
      values.format.kind = WeightKind::BF16;
      [[fallthrough]];
    case KvType::F16:
      kernels.decode_row(values, 0, memory);
      return memory;
    case KvType::Q8:
      tiled ? kernels.attention->decode_q8_tiles(from, n_tiles, d, memory)
            : kernels.attention->decode_q8_rows(from, n, d, memory);
      return memory;
  }
  return nullptr;
}

// Keys in tiles, each against all queries.
struct GroupedQueries {
  const AttentionOp& op;
  const KernelTable& kernels;

  int d() const { return op.spec->d_head; }
  int d_value() const { return d(); }
  std::int64_t queries_size(int n) const { return std::int64_t{n} * d(); }
  std::int64_t memory_size(int) const {  // of decoded keys and values
    return std::int64_t{2} * kKeyBlock * d();
  }

  void gather(const QueryTile& tile, float* queries) const {
    for (int j = 0; j < tile.size(); ++j) {
      std::copy_n(op.q + tile.token_of(j) * op.token_stride + tile.head_of(j) * op.head_stride, d(),
                  queries + std::int64_t{j} * d());
    }
  }

  ValueRows scores(const QueryTile& tile, const float* queries, std::int64_t position, int n_keys,
                   float* memory, float* out) const {
    kernels.attention->tile_dots(
        {.rows = queries,
         .row_stride = d(),
         .n_rows = tile.size(),
         .tiles = decode(kernels, op.k, tile.group, position, n_keys, memory),
         .n_tiles = (n_keys + kKvLanes - 1) / kKvLanes,
         .d = d(),
         .out = out,
         .out_stride = kKeyBlock});
    float* values = memory + std::int64_t{kKeyBlock} * d();
    return {decode(kernels, op.v, tile.group, position, n_keys, values), d()};
  }

  void finish(const QueryTile& tile, int query, const float* values, float sum,
              float* memory) const {
    const std::int64_t token = tile.token_of(query), head = tile.head_of(query);
    float* out = op.out + (token * op.spec->n_heads + head) * d();
    kernels.sigmoid_row(op.gate + token * op.token_stride + head * op.head_stride, memory, d());
    const float inverse = 1.0f / sum;
    for (int c = 0; c < d(); ++c) out[c] = values[c] * inverse * memory[c];
  }
};

// One row per position is the key and, but for its rotary part, the value of all heads. So queries
// are put into tiles instead of keys.
struct LatentQueries {
  const LatentAttentionOp& op;
  const KernelTable& kernels;

  int d() const { return op.spec->kv_rank + op.spec->d_rope; }
  int d_value() const { return op.spec->kv_rank; }
  static int padded(int n) { return (n + kKvLanes - 1) / kKvLanes * kKvLanes; }
  std::int64_t queries_size(int n) const { return std::int64_t{padded(n)} * d(); }
  std::int64_t memory_size(int n) const {  // of scores[key][query], and of decoded rows
    return std::int64_t{kKeyBlock} * (padded(n) + d());
  }

  void gather(const QueryTile& tile, float* queries) const {
    const int rank = op.spec->kv_rank;
    std::fill_n(queries, queries_size(tile.size()), 0.0f);
    for (int j = 0; j < tile.size(); ++j) {
      const std::int64_t token = tile.token_of(j), head = tile.head_of(j);
      const float* latent = op.q_latent + (token * op.spec->n_heads + head) * rank;
      const float* rope = op.q_rope + token * op.q_rope_token_stride + head * op.q_rope_head_stride;
      float* lane = queries + std::int64_t{j / kKvLanes} * kKvLanes * d() + j % kKvLanes;
      for (int c = 0; c < rank; ++c) lane[c * kKvLanes] = latent[c];
      for (int c = 0; c < op.spec->d_rope; ++c) lane[(rank + c) * kKvLanes] = rope[c];
    }
  }

  ValueRows scores(const QueryTile& tile, const float* queries, std::int64_t position, int n_keys,
                   float* memory, float* out) const {
    const int n = tile.size(), lanes = padded(n);
    float* of_keys = memory;
    const float* rows =
        decode(kernels, op.kv, 0, position, n_keys, memory + std::int64_t{kKeyBlock} * lanes);
    kernels.attention->tile_dots({.rows = rows,
                                  .row_stride = d(),
                                  .n_rows = n_keys,
                                  .tiles = queries,
                                  .n_tiles = lanes / kKvLanes,
                                  .d = d(),
                                  .out = of_keys,
                                  .out_stride = lanes});
    for (int j = 0; j < n; ++j) {
      for (int t = 0; t < n_keys; ++t) out[j * kKeyBlock + t] = of_keys[t * lanes + j];
    }
    return {rows, d()};
  }

  void finish(const QueryTile& tile, int query, const float* values, float sum, float*) const {
    const std::int64_t row = tile.token_of(query) * op.spec->n_heads + tile.head_of(query);
    float* out = op.out + row * d_value();
    const float inverse = 1.0f / sum;
    for (int c = 0; c < d_value(); ++c) out[c] = values[c] * inverse;
  }
};

}  // namespace

void CpuBackend::attention(const AttentionOp& op) {
  const GatedAttentionSpec& s = *op.spec;
  MOEFLUX_ASSERT(op.k.shape.layout == KvLayout::Tiles && op.v.shape.layout == KvLayout::Rows);
  BlockedAttention<GroupedQueries>({op, kernels_},
                                   {.n_groups = s.n_kv_heads,
                                    .heads_per_group = s.n_heads / s.n_kv_heads,
                                    .n = op.n,
                                    .first_position = op.first_position,
                                    .scale = s.scale},
                                   *kernels_.attention)
      .run(
          pool_, [this](int worker, std::int64_t n) { return scratch(worker, n); },
          attention_parts_);
}

void CpuBackend::latent_attention(const LatentAttentionOp& op) {
  const MlaSpec& s = *op.spec;
  MOEFLUX_ASSERT(op.kv.shape.layout == KvLayout::Rows && op.kv.shape.d == s.kv_rank + s.d_rope);
  BlockedAttention<LatentQueries>({op, kernels_},
                                  {.n_groups = 1,
                                   .heads_per_group = s.n_heads,
                                   .n = op.n,
                                   .first_position = op.first_position,
                                   .scale = s.scale},
                                  *kernels_.attention)
      .run(
          pool_, [this](int worker, std::int64_t n) { return scratch(worker, n); },
          attention_parts_);
}

}  // namespace moeflux::cpu
