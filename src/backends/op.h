// The coarse operations a forward pass is made of, as plain parameter structs. Families do not know
// them, backends know nothing else.
//
// Activations are f32, row-major, one row per token. Pointers lie in the backend's own memory
// (Backend::allocate). Every row of a result depends only on the same row of the inputs (and on the
// sequence's own state), with a fixed order of summation: batching, chunking and the number of
// threads never change a number.
#pragma once

#include <cstdint>
#include <span>

#include "backends/kv_cache.h"
#include "model/layer_spec.h"
#include "quant/weight_format.h"

namespace moeflux {

struct EmbedOp {
  WeightView table;                      // [n_vocab, d]
  std::span<const std::int32_t> tokens;  // each in [0, n_vocab)
  float* out;                            // [n, d]
};

// out = x / sqrt(mean(x^2) + eps) * weight, over rows of d values.
struct RmsNormOp {
  const float* x;
  std::int64_t x_stride;
  const float* weight;  // [d]
  float eps;
  std::int64_t n;
  std::int64_t d;
  float* out;
  std::int64_t out_stride;
};

// y[i] = W x[i]
struct MatmulOp {
  WeightView weight;  // [rows, cols]
  const float* x;     // n rows of cols
  std::int64_t x_stride;
  std::int64_t n;
  float* y;  // n rows of rows
  std::int64_t y_stride;
};

// y += x
struct AddOp {
  const float* x;
  float* y;
  std::int64_t count;
};

// Rotates the first rope.n_rot values of each head in place.
struct RopeOp {
  const RopeSpec* rope;
  float* x;
  std::int64_t token_stride;
  std::int64_t head_stride;
  int n_heads;
  std::int64_t n;
  std::int64_t first_position;  // row i is at first_position + i
};

// Puts the rows of n new positions into a cache: x is [n, n_heads * d].
struct StoreKvOp {
  KvView cache;
  const float* x;
  std::int64_t x_stride;
  std::int64_t n;
  std::int64_t first_position;
};

// Causal grouped-query attention of n new tokens over everything cached, gated by a sigmoid.
// The new tokens' keys and values are already in the cache.
struct AttentionOp {
  const GatedAttentionSpec* spec;
  const float* q;     // [n, n_heads, d_head] at the strides below
  const float* gate;  // same strides as q
  std::int64_t token_stride;
  std::int64_t head_stride;
  KvView k;  // tiles of n_kv_heads x d_head
  KvView v;  // rows of the same
  std::int64_t n;
  std::int64_t first_position;
  float* out;  // [n, n_heads * d_head]
};

// Causal depthwise convolution with SiLU. The state holds the conv_width - 1 inputs before this
// call, oldest first, and is advanced.
struct ShortConvOp {
  const float* x;       // [n, channels]
  const float* weight;  // [width, channels]
  float* state;         // [width - 1, channels]
  std::int64_t channels;
  int width;
  std::int64_t n;
  float* out;  // [n, channels]
};

// The gated delta rule over n tokens: L2-normalised queries and keys, decay, state update,
// read-out, gated norm. Destroys qkv, z, b and a.
struct GatedDeltaOp {
  const GatedDeltaSpec* spec;
  float* qkv;            // [n, conv_dim], after the convolution
  float* z;              // [n, value_dim]
  float* b;              // [n, n_value_heads]
  float* a;              // [n, n_value_heads]
  const float* a_log;    // [n_value_heads]
  const float* dt_bias;  // [n_value_heads]
  const float* norm;     // [d_value]
  float eps;
  float* state;  // [n_value_heads, d_key, d_value], advanced
  std::int64_t n;
  float* out;  // [n, value_dim]
};

// Latent attention in its absorbed form: one key of kv_rank + d_rope values per position, shared by
// all heads.
struct LatentAttentionOp {
  const MlaSpec* spec;
  const float* q_latent;  // [n, n_heads, kv_rank]
  const float* q_rope;    // [n, n_heads, d_rope] at the strides below
  std::int64_t q_rope_token_stride;
  std::int64_t q_rope_head_stride;
  KvView kv;  // rows of one head: latent | rotary key
  std::int64_t n;
  std::int64_t first_position;
  float* out;  // [n, n_heads, kv_rank]: the attended latents
};

// One small matrix per head: rows [h * head_rows + row0, ... + rows) of `weight`, used as they are
// or transposed.
struct HeadMatrix {
  WeightView weight;
  std::int64_t head_rows;
  std::int64_t row0;
  std::int64_t rows;
  bool transpose;

  std::int64_t row(std::int64_t head, std::int64_t i) const { return head * head_rows + row0 + i; }
};

// y[i, h] = W_h x[i, h], or W_h^T x[i, h].
struct HeadMatmulOp {
  HeadMatrix matrix;
  int n_heads;
  const float* x;  // [n, n_heads, cols, or rows when transposed] at the strides below
  std::int64_t x_token_stride;
  std::int64_t x_head_stride;
  std::int64_t n;
  float* y;
  std::int64_t y_token_stride;
  std::int64_t y_head_stride;
};

// Latent attention in its expanded form: keys and values of every head are multiplied out of the
// latents, once for all n tokens. Up to rounding the absorbed form with the products around it;
// cheaper where n is large.
struct ExpandedAttentionOp {
  const MlaSpec* spec;
  HeadMatrix keys;    // as the absorbed form multiplies queries with it: kv_rank from d_nope values
  HeadMatrix values;  // d_value values from a latent; not transposed
  const float* q;     // [n, n_heads, d_nope + d_rope] at the strides below
  std::int64_t token_stride;
  std::int64_t head_stride;
  KvView kv;  // rows of one head: latent | rotary key
  std::int64_t n;
  std::int64_t first_position;
  float* out;  // [n, n_heads, d_value]
};

// down(silu(gate x) * (up x)) for selected rows: row rows_in[i] of x gives row rows_out[i] of y.
// Empty row lists mean rows 0..n-1.
struct FfnOp {
  WeightView gate, up, down;
  const float* x;  // [*, d_model]
  std::int64_t n;
  std::span<const std::int32_t> rows_in;
  std::span<const std::int32_t> rows_out;
  float* hidden;  // scratch [n, d_ff]
  float* y;       // [*, d_model]
};

// out[i] = sum over slots, in slot order, of weights[i, slot] * experts[i, slot], plus the shared
// expert.
struct CombineOp {
  const float* experts;      // [n, top_k, d]
  const float* weights;      // [n, top_k]
  const float* shared;       // [n, d] or null
  const float* shared_gate;  // [n] logits of the shared expert's sigmoid gate, or null: unscaled
  int top_k;
  std::int64_t n;
  std::int64_t d;
  float* out;  // [n, d]
};

}  // namespace moeflux
