// The kinds of attention, over the cache in blocks (attention_blocks.h). Heads that share keys go
// together, and so do neighbouring tokens: keys are read, and decoded, once for all of them.
#include <algorithm>

#include "backends/cpu/attention_blocks.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/host_ops.h"
#include "base/error.h"
#include "base/portable_math.h"

namespace moeflux::cpu {
namespace {

int tiles_of(int n) {
  return (n + kKvLanes - 1) / kKvLanes;
}
int whole_tiles(int n) {
  return tiles_of(n) * kKvLanes;
}

// Rows of a cache as floats, packed in the layout of the cache: where they are, or decoded into
// `memory`. In tiles, n is rounded up to whole ones.
const float* decode(const KernelTable& kernels, const KvView& cache, int head,
                    std::int64_t position, int n, float* memory) {
  const std::byte* from = kv_at(cache, head, position);
  const bool tiled = cache.shape.layout == KvLayout::Tiles;
  const std::int64_t n_tiles = tiles_of(n);
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

// Queries that lie in rows: of each head the first d values.
void gather_rows(const View& q, std::int64_t head_stride, const QueryTile& tile, int d,
                 float* queries) {
  for (int j = 0; j < tile.size(); ++j) {
    std::copy_n(floats(q) + tile.token_of(j) * q.stride + tile.head_of(j) * head_stride, d,
                queries + std::int64_t{j} * d);
  }
}
void scores_of_rows(const KernelTable& kernels, const KeyBlock& block, const float* queries, int n,
                    int d, float* out) {
  kernels.attention->tile_dots({.rows = queries,
                                .row_stride = d,
                                .n_rows = n,
                                .tiles = block.keys,
                                .n_tiles = tiles_of(block.n_keys),
                                .d = d,
                                .out = out,
                                .out_stride = kKeyBlock});
}

// Keys in tiles, each against all queries.
struct GroupedQueries {
  const AttentionOp& op;
  const KernelTable& kernels;

  int d() const { return op.spec->d_head; }
  int d_value() const { return d(); }
  int most_queries() const { return kQueryPiece; }
  std::int64_t queries_size(int n) const { return std::int64_t{n} * d(); }
  std::int64_t memory_size() const {  // of decoded keys and values
    return std::int64_t{2} * kKeyBlock * d();
  }

  void gather(const QueryTile& tile, float* queries) const {
    gather_rows(op.q, op.spec->query_head(), tile, d(), queries);
  }

  KeyBlock load(const QueryTile& tile, const float*, std::int64_t position, int n_keys,
                float* memory) const {
    float* values = memory + std::int64_t{kKeyBlock} * d();
    return {decode(kernels, op.k, tile.group, position, n_keys, memory),
            decode(kernels, op.v, tile.group, position, n_keys, values), d(), n_keys};
  }

  void scores(const KeyBlock& block, const float* queries, int first, int n, float*,
              float* out) const {
    scores_of_rows(kernels, block, queries + std::int64_t{first} * d(), n, d(), out);
  }

  void finish(const QueryTile& tile, int query, const float* values, SoftmaxSum sum,
              float* memory) const {
    const std::int64_t token = tile.token_of(query), head = tile.head_of(query);
    float* out = floats(op.out) + token * op.out.stride + head * d();
    const float inverse =
        op.spec->has_sinks ? with_sink(sum, floats(op.sinks)[head]) : 1.0f / sum.sum;
    if (!op.spec->has_output_gate) {
      for (int c = 0; c < d(); ++c) out[c] = values[c] * inverse;
      return;
    }
    const float* gate = floats(op.q) + token * op.q.stride + head * op.spec->query_head() + d();
    kernels.sigmoid_row(gate, memory, d());
    for (int c = 0; c < d(); ++c) out[c] = values[c] * inverse * memory[c];
  }

 private:
  // What values are multiplied with where one more score is part of the softmax.
  static float with_sink(const SoftmaxSum& sum, float sink) {
    const float max = std::max(sum.max, sink);
    const float scale = portable::exp(sum.max - max);
    return scale / (sum.sum * scale + portable::exp(sink - max));
  }
};

// One row per position is the key and, but for its rotary part, the value of all heads. So queries
// are put into tiles instead of keys.
struct LatentQueries {
  const LatentAttentionOp& op;
  const KernelTable& kernels;

  int d() const { return op.spec->kv_rank + op.spec->d_rope; }
  int d_value() const { return op.spec->kv_rank; }
  int most_queries() const { return kQueryPiece; }
  std::int64_t queries_size(int n) const { return std::int64_t{whole_tiles(n)} * d(); }
  std::int64_t memory_size() const {  // of scores[key][query], and of decoded rows
    return std::int64_t{kKeyBlock} * (kQueryPiece + d());
  }

  void gather(const QueryTile& tile, float* queries) const {
    const int rank = op.spec->kv_rank;
    std::fill_n(queries, queries_size(tile.size()), 0.0f);
    for (int j = 0; j < tile.size(); ++j) {
      const std::int64_t token = tile.token_of(j), head = tile.head_of(j);
      const float* latent = floats(op.q_latent) + token * op.q_latent.stride + head * rank;
      const float* rope =
          floats(op.q) + token * op.q.stride + head * op.spec->d_query() + op.spec->d_nope;
      float* lane = queries + std::int64_t{j / kKvLanes} * kKvLanes * d() + j % kKvLanes;
      for (int c = 0; c < rank; ++c) lane[c * kKvLanes] = latent[c];
      for (int c = 0; c < op.spec->d_rope; ++c) lane[(rank + c) * kKvLanes] = rope[c];
    }
  }

  KeyBlock load(const QueryTile&, const float*, std::int64_t position, int n_keys,
                float* memory) const {
    const float* rows =
        decode(kernels, op.kv, 0, position, n_keys, memory + std::int64_t{kKeyBlock} * kQueryPiece);
    return {rows, rows, d(), n_keys};
  }

  void scores(const KeyBlock& block, const float* queries, int first, int n, float* of_keys,
              float* out) const {
    const int lanes = whole_tiles(n);
    kernels.attention->tile_dots({.rows = block.keys,
                                  .row_stride = d(),
                                  .n_rows = block.n_keys,
                                  .tiles = queries + std::int64_t{first} * d(),
                                  .n_tiles = tiles_of(n),
                                  .d = d(),
                                  .out = of_keys,
                                  .out_stride = lanes});
    for (int j = 0; j < n; ++j) {
      for (int t = 0; t < block.n_keys; ++t) out[j * kKeyBlock + t] = of_keys[t * lanes + j];
    }
  }

  void finish(const QueryTile& tile, int query, const float* values, SoftmaxSum sum, float*) const {
    float* out = floats(op.out) + tile.token_of(query) * op.out.stride +
                 std::int64_t{tile.head_of(query)} * d_value();
    const float inverse = 1.0f / sum.sum;
    for (int c = 0; c < d_value(); ++c) out[c] = values[c] * inverse;
  }
};

// Keys and values of one head, multiplied out of the latents block by block, for as many queries as
// there are.
struct ExpandedQueries {
  const ExpandedAttentionOp& op;
  const KernelTable& kernels;
  const HostHeadMatrix key_matrix = HostHeadMatrix(op.keys);
  const HostHeadMatrix value_matrix = HostHeadMatrix(op.values);

  int rank() const { return op.spec->kv_rank; }
  int d_row() const { return rank() + op.spec->d_rope; }
  int d() const { return op.spec->d_nope + op.spec->d_rope; }
  int d_value() const { return op.spec->d_value; }
  int most_queries() const { return kExpandedQueries; }

  // Queries, then the head's weights: [d_nope][rank] for keys, tiles of [rank][16] for values.
  std::int64_t key_weights_at(int n) const { return std::int64_t{whole_tiles(n)} * d(); }
  std::int64_t value_weights_at(int n) const {
    return key_weights_at(n) + std::int64_t{whole_tiles(op.spec->d_nope)} * rank();
  }
  std::int64_t queries_size(int n) const {
    return row_at(n) + std::max<std::int64_t>(key_matrix.weight.cols, rank());
  }
  std::int64_t row_at(int n) const {  // one that is transposed
    return value_weights_at(n) + std::int64_t{whole_tiles(d_value())} * rank();
  }

  void gather(const QueryTile& tile, float* queries) const {
    const int n = tile.size();
    gather_rows(op.q, d(), tile, d(), queries);
    decode_weights(tile.group, queries + key_weights_at(n), queries + value_weights_at(n),
                   queries + row_at(n));
  }

  // Latents in tiles, keys in tiles, values, and decoded rows of the cache.
  std::int64_t keys_at() const { return std::int64_t{kKeyBlock} * rank(); }
  std::int64_t values_at() const { return keys_at() + std::int64_t{kKeyBlock} * d(); }
  std::int64_t rows_at() const {
    return values_at() + std::int64_t{kKeyBlock} * whole_tiles(d_value());
  }
  std::int64_t memory_size() const { return rows_at() + std::int64_t{kKeyBlock} * d_row(); }

  KeyBlock load(const QueryTile& tile, const float* queries, std::int64_t position, int n_keys,
                float* memory) const {
    const int n = tile.size(), d_nope = op.spec->d_nope, value_stride = whole_tiles(d_value());
    const float* rows = decode(kernels, op.kv, 0, position, n_keys, memory + rows_at());
    float *latents = memory, *keys = memory + keys_at(), *values = memory + values_at();
    for (int t = 0; t < tiles_of(n_keys); ++t) {
      const int n_lanes = std::min(kKvLanes, n_keys - t * kKvLanes);
      const float* of_tile = rows + std::int64_t{t} * kKvLanes * d_row();
      float* tile_latents = latents + std::int64_t{t} * rank() * kKvLanes;
      float* tile_keys = keys + std::int64_t{t} * d() * kKvLanes;
      to_tile(of_tile, n_lanes, rank(), tile_latents);
      kernels.attention->tile_dots({.rows = queries + key_weights_at(n),
                                    .row_stride = rank(),
                                    .n_rows = d_nope,
                                    .tiles = tile_latents,
                                    .n_tiles = 1,
                                    .d = rank(),
                                    .out = tile_keys,
                                    .out_stride = kKvLanes});
      to_tile(of_tile + rank(), n_lanes, op.spec->d_rope,
              tile_keys + std::int64_t{d_nope} * kKvLanes);
    }
    kernels.attention->tile_dots({.rows = rows,
                                  .row_stride = d_row(),
                                  .n_rows = n_keys,
                                  .tiles = queries + value_weights_at(n),
                                  .n_tiles = tiles_of(d_value()),
                                  .d = rank(),
                                  .out = values,
                                  .out_stride = value_stride});
    return {keys, values, value_stride, n_keys};
  }

  void scores(const KeyBlock& block, const float* queries, int first, int n, float*,
              float* out) const {
    scores_of_rows(kernels, block, queries + std::int64_t{first} * d(), n, d(), out);
  }

  void finish(const QueryTile& tile, int query, const float* values, SoftmaxSum sum, float*) const {
    float* out = floats(op.out) + tile.token_of(query) * op.out.stride +
                 std::int64_t{tile.head_of(query)} * d_value();
    const float inverse = 1.0f / sum.sum;
    for (int c = 0; c < d_value(); ++c) out[c] = values[c] * inverse;
  }

 private:
  // The first n values of up to 16 rows, by columns; lanes without a row are zero.
  void to_tile(const float* rows, int n_rows, int n, float* tile) const {
    for (int c = 0; c < n; ++c, tile += kKvLanes) {
      for (int lane = 0; lane < n_rows; ++lane) tile[lane] = rows[std::int64_t{lane} * d_row() + c];
      std::fill(tile + n_rows, tile + kKvLanes, 0.0f);
    }
  }

  void decode_weights(int head, float* for_keys, float* for_values, float* row) const {
    for (std::int64_t r = 0; r < key_matrix.rows; ++r) {
      if (key_matrix.transpose) {  // for queries: for latents it lies right
        kernels.decode_row(key_matrix.weight, key_matrix.row(head, r), for_keys + r * rank());
        continue;
      }
      kernels.decode_row(key_matrix.weight, key_matrix.row(head, r), row);
      for (int c = 0; c < op.spec->d_nope; ++c) for_keys[std::int64_t{c} * rank() + r] = row[c];
    }
    for (int c = 0; c < whole_tiles(d_value()); ++c) {
      if (c < d_value()) {
        kernels.decode_row(value_matrix.weight, value_matrix.row(head, c), row);
      } else {
        std::fill_n(row, rank(), 0.0f);
      }
      float* lane = for_values + std::int64_t{c / kKvLanes} * rank() * kKvLanes + c % kKvLanes;
      for (int i = 0; i < rank(); ++i) lane[std::int64_t{i} * kKvLanes] = row[i];
    }
  }
};

}  // namespace

void CpuBackend::attention(const AttentionOp& op) {
  const AttentionSpec& s = *op.spec;
  MOEFLUX_ASSERT(op.k.shape.layout == KvLayout::Tiles && op.v.shape.layout == KvLayout::Rows);
  BlockedAttention<GroupedQueries>({op, kernels_},
                                   {.n_groups = s.n_kv_heads,
                                    .heads_per_group = s.n_heads / s.n_kv_heads,
                                    .n = op.q.rows,
                                    .first_position = first_position(op.positions),
                                    .scale = s.scale,
                                    .window = s.window},
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
                                   .n = op.q.rows,
                                   .first_position = first_position(op.positions),
                                   .scale = s.scale},
                                  *kernels_.attention)
      .run(
          pool_, [this](int worker, std::int64_t n) { return scratch(worker, n); },
          attention_parts_);
}

void CpuBackend::expanded_attention(const ExpandedAttentionOp& op) {
  const MlaSpec& s = *op.spec;
  MOEFLUX_ASSERT(op.kv.shape.layout == KvLayout::Rows && op.kv.shape.d == s.kv_rank + s.d_rope);
  BlockedAttention<ExpandedQueries>({op, kernels_},
                                    {.n_groups = s.n_heads,
                                     .heads_per_group = 1,
                                     .n = op.q.rows,
                                     .first_position = first_position(op.positions),
                                     .scale = s.scale},
                                    *kernels_.attention)
      .run(
          pool_, [this](int worker, std::int64_t n) { return scratch(worker, n); },
          attention_parts_);
}

}  // namespace moeflux::cpu
