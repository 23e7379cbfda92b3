// What the kernels of attention take, and how they share the work.
//
// A group is the heads that share keys and values. Query j of a group is head j % heads_per_group
// of token j / heads_per_group. Keys are taken in blocks of key_block positions that begin at
// multiples of it. Where few queries read many keys, block b belongs to piece b % n_pieces; a piece
// leaves a part for every query (the sums of what it has seen), and parts are merged in their
// order. So a row of a result does not depend on which other rows are in the call.
#pragma once

#include "backends/cuda/kernels/operands.h"

namespace moeflux::gpu {

inline constexpr int kKvTile = 16;

// Weights of a softmax: 2^(score - max), and their sum. Scores are in units of ln 2.
struct SoftmaxSum {
  float max, sum;
};

struct AttentionParams {
  // A query: d_first values at q, the others at q_rest.
  const float* q;
  const float* q_rest;
  const float* gate;   // null: none; where a query is in q
  const float* sinks;  // null: none
  const std::int32_t* positions;
  float* out;
  float* parts;  // [piece][token][head][d_value]; null: there is one piece, which finishes
  SoftmaxSum* sums;
  std::int64_t q_stride, q_head;  // from token to token, from head to head
  std::int64_t rest_stride, rest_head;
  std::int64_t out_stride, out_head;
  DeviceKv k, v;
  std::int32_t n, n_groups, heads_per_group;
  std::int32_t d, d_first, d_value;
  std::int32_t values_are_keys;  // their first d_value values; there is no v
  std::int32_t window;           // 0: all
  std::int32_t n_pieces, key_block;
  float scale;  // of scores, in units of ln 2
  std::int32_t unused;
};

inline constexpr int kExactQueries = 16, kExactThreads = 256, kExactKeyBlock = 64;
inline constexpr int kMergeThreads = 512, kMostPieces = 512;

// Few tokens on tensor cores: what a warp has in shared memory (attention_few.cu).
inline constexpr int kFewTokensWarps = 4, kFewTokensThreads = kFewTokensWarps * kWarp;

constexpr int few_tokens_run(KvElement type) {  // positions
  return type == KvElement::Q8 ? 32 : 16;
}
// From one tile of keys to the next, from 8 rows of values to the next: apart in banks.
constexpr int few_tokens_tile_stride(KvElement type, int bytes) {
  return type == KvElement::Q8 ? bytes + (192 - bytes % 128) % 128 : bytes;
}
constexpr int few_tokens_rows_stride(int bytes) {
  return bytes + (160 - bytes % 128) % 128;
}
constexpr int few_tokens_query_bytes(KvElement type, int most_d) {
  const bool has_two_parts = type == KvElement::BF16 || type == KvElement::F32;
  return 16 * (most_d + 8) * 2 * (has_two_parts ? 2 : 1);
}
struct FewTokensMemory {
  int key_bytes, warp_bytes;
};
constexpr FewTokensMemory few_tokens_memory(KvElement type, const AttentionParams& p) {
  const int n_tiles = few_tokens_run(type) / kKvTile;
  const int k_row = static_cast<int>(p.k.row_bytes), v_row = static_cast<int>(p.v.row_bytes);
  const int keys = n_tiles * few_tokens_tile_stride(type, kKvTile * k_row);
  const int values = type == KvElement::Q8
                         ? few_tokens_run(type) / 8 * few_tokens_rows_stride(8 * v_row)
                         : few_tokens_run(type) * v_row;
  const int key_bytes = (keys + 127) / 128 * 128;
  return {key_bytes, key_bytes + (values + 127) / 128 * 128};
}

// Latents (attention_latent.cu): of 64 queries together, or 16.
inline constexpr int kLatentThreads = 256;
inline constexpr int kUsualLatent = 576, kUsualRank = 512;  // values of a row, of its latent

constexpr int latent_keys(int rows) {  // positions of a tile
  return rows == 4 ? 32 : 16;
}
constexpr int latent_scores(int rows) {  // floats
  return (rows == 4 ? 64 : kLatentThreads / kWarp * 16) * (latent_keys(rows) + 4);
}
constexpr int latent_shared_bytes(int rows, const DeviceKv& kv) {
  const int keys = latent_keys(rows), stride = (kv.d + 15) / 16 * 16 + 8;
  const bool is_direct = kv.element == KvElement::F16 && kv.d % 16 == 0;
  const int halves = (rows * 16 + keys * (is_direct ? 2 : 1)) * stride + rows * 16 * (keys + 8);
  return 2 * halves + 4 * latent_scores(rows) +
         (is_direct ? 0 : keys * static_cast<int>(kv.row_bytes));
}

// Many tokens: keys and values are halves, those of a cache or copies in the same layouts that hold
// some positions only. What earlier positions have given a query lies in `out`, and in `sums`
// [token][head].
struct ManyTokensParams {
  AttentionParams attention;
  // Powers of two that belong to copies: [group][16 positions]. Null: none.
  const float* key_factors;
  const float* value_factors;
  std::int64_t factors_head;
  std::int32_t begin, end;  // positions, multiples of kManyTokensKeys
};

inline constexpr int kManyTokensKeys = 64;
constexpr int many_tokens_threads(int d, int keys) {
  return d == 256 && keys == kManyTokensKeys ? 256 : 128;
}

// Copies positions [begin, end) of a cache as halves of at most 2^14 times a factor.
struct StageParams {
  DeviceKv from;
  std::uint16_t* to;  // [head][positions], as `from` in tiles or rows
  float* factors;     // [head][16 positions]
  const std::int32_t* positions;
  std::int64_t to_head, factors_head;
  std::int32_t n, window;
  std::int32_t begin, end;
  std::int32_t d;  // of the copy: zeros beyond that of the cache
  std::int32_t unused;
};

inline constexpr int kStageThreads = 128;

// Matrices of some heads as halves: [head][d_nope rows of keys, d_value rows of values][width],
// zeros behind `rank`.
struct HeadHalvesParams {
  DeviceWeight keys, values;
  std::int64_t key_head_rows, key_row0, value_head_rows, value_row0;
  std::uint16_t* to;
  std::int32_t first_head;
  std::int32_t keys_transposed;  // as HeadMatrix: rows of keys are those of queries
  std::int32_t rank, d_nope, d_value, width;
};

inline constexpr int kHeadHalvesThreads = 128;

// Keys and values of some heads and positions, multiplied out of latents.
struct ExpandParams {
  const std::uint16_t* latents;  // [position][latents_stride], latents and rotary keys
  const float* latent_factors;   // [16 positions]
  const std::uint16_t* weights;  // of HeadHalvesParams
  std::uint16_t *keys, *values;  // as ManyTokensParams has them
  const std::int32_t* positions;
  std::int64_t latents_stride, keys_head, values_head;
  std::int32_t n, begin, end;
  std::int32_t rank, d_nope, d_rope, d_value;
  std::int32_t width;                     // of rows of weights, a multiple of kExpandDepth
  std::int32_t key_values, value_values;  // numbers that a key and a value take
};

inline constexpr int kExpandThreads = 256, kExpandSide = 128, kExpandDepth = 64;
inline constexpr int kExpandSharedBytes = 2 * 2 * kExpandSide * (kExpandDepth + 8) * 2;

struct HeadMatmulParams {
  DeviceWeight weight;
  const float* x;
  float* y;
  std::int64_t x_stride, x_head, y_stride, y_head;
  std::int64_t head_rows, row0;
  std::int32_t n, rows;
};

inline constexpr int kHeadThreads = 256;
inline constexpr int kHeadInputs = 4;  // rows of x at a time
inline constexpr int kHeadRows = 32, kHeadColumns = 256;

}  // namespace moeflux::gpu
