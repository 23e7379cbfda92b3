// What the kernels of attention take, and how they share the work.
//
// A group is the heads that share keys and values. Query j of a group is head j % heads_per_group
// of token j / heads_per_group. Keys are taken in blocks of kKeyBlock positions that begin at
// multiples of it. Where few queries read many keys, block b belongs to piece b % n_pieces; a piece
// leaves a part for every query (the sums of what it has seen), and parts are merged in their
// order. So a row of a result does not depend on which other rows are in the call.
#pragma once

#include "backends/cuda/kernels/operands.h"

namespace moeflux::gpu {

inline constexpr int kKeyBlock = 64, kKvTile = 16;

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
  std::int32_t n_pieces;
  float scale;  // of scores, in units of ln 2
};

inline constexpr int kExactQueries = 16, kExactThreads = 256;
inline constexpr int kMergeThreads = 512, kMostPieces = 512;

struct HeadMatmulParams {
  DeviceWeight weight;
  const float* x;
  float* y;
  std::int64_t x_stride, x_head, y_stride, y_head;
  std::int64_t head_rows, row0;
  std::int32_t n, rows;
};

inline constexpr int kHeadThreads = 256;
inline constexpr int kHeadInputs = 8;  // rows of x at a time

}  // namespace moeflux::gpu
