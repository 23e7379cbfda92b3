// The coarse operations a forward pass is made of, as plain parameter structs. Families do not know
// them, backends know nothing else.
//
// Activations are f32, row-major, one row per token. What changes from one pass to the next
// (tokens, positions, lists of rows, routes) is an operand like the activations; what is constant
// for a model is a constant. So a pass over one row of one session is the same list of operations
// every time. Every row of a result depends only on the same row of the inputs (and on the
// sequence's own state), with a fixed order of summation: batching, chunking and the number of
// threads never change a number. A view that is empty stands for an operand that is not there.
#pragma once

#include <cstdint>

#include "backends/expert_table.h"
#include "backends/kv_cache.h"
#include "backends/memory.h"
#include "model/layer_spec.h"

namespace moeflux {

struct EmbedOp {
  Weight table;  // [n_vocab, d]
  View tokens;   // I32 [1, n], each in [0, n_vocab)
  float scale = 1;
  View out;  // [n, d]
};

// out = x / sqrt(mean(x^2) + eps) * weight, row by row.
struct RmsNormOp {
  View x;
  View weight;  // [1, d]; empty: ones
  float eps;
  View out;
};

// y[i] = W x[i] + bias
struct MatmulOp {
  Weight weight;
  View bias = {};  // [1, rows]
  View x;          // [n, cols]
  View y;          // [n, rows]
};

// y += x, and then y *= scale
struct AddOp {
  View x;
  View y;
  View scale = {};  // [1, 1]
};

// x = cap * tanh(x / cap)
struct SoftcapOp {
  View x;
  float cap;
};

// x is cut off at -limit and limit.
struct ClampOp {
  View x;
  float limit;
};

// Rotates the first rope.n_rot values of each head in place.
struct RopeOp {
  const RopeSpec* rope;
  View x;  // [n, n_heads heads at head_stride]
  int n_heads;
  std::int64_t head_stride;
  View positions;  // I32 [1, n]
};

// Puts the rows of new positions into a cache.
struct StoreKvOp {
  KvView cache;
  View x;          // [n, n_heads * d]
  View positions;  // I32 [1, n], one after the other
};

// Causal grouped-query attention of new tokens over everything cached. Their keys and values are
// already in the cache.
struct AttentionOp {
  const AttentionSpec* spec;
  View q;          // [n, n_heads * d_head]; with an output gate per head the query, then the gate
  KvView k;        // tiles of n_kv_heads x d_head
  KvView v;        // rows of the same
  View sinks;      // [1, n_heads]: a score per head that takes part in the softmax and has no value
  View positions;  // I32 [1, n], one after the other
  View out;        // [n, n_heads * d_head]
};

// Causal depthwise convolution with SiLU. The state holds the conv_width - 1 inputs before this
// call, oldest first, and is advanced.
struct ShortConvOp {
  View x;       // [n, channels]
  View weight;  // [width, channels]
  View state;   // [width - 1, channels]
  View out;     // [n, channels]
};

// The gated delta rule: L2-normalised queries and keys, decay, state update, read-out, gated norm.
// Destroys qkv, z, b and a.
struct GatedDeltaOp {
  const GatedDeltaSpec* spec;
  View qkv;      // [n, conv_dim], after the convolution
  View z;        // [n, value_dim]
  View b;        // [n, n_value_heads]
  View a;        // [n, n_value_heads]
  View a_log;    // [1, n_value_heads]
  View dt_bias;  // [1, n_value_heads]
  View norm;     // [1, d_value]
  float eps;
  View state;  // [n_value_heads * d_key, d_value], advanced
  View out;    // [n, value_dim]
};

// Latent attention in its absorbed form: one key of kv_rank + d_rope values per position, shared by
// all heads.
struct LatentAttentionOp {
  const MlaSpec* spec;
  View q_latent;   // [n, n_heads * kv_rank]
  View q;          // [n, n_heads * (d_nope + d_rope)], of which the rotary parts are used
  KvView kv;       // rows of one head: latent | rotary key
  View positions;  // I32 [1, n], one after the other
  View out;        // [n, n_heads * kv_rank]: the attended latents
};

// One small matrix per head: rows [h * head_rows + row0, ... + rows) of `weight`, used as they are
// or transposed.
struct HeadMatrix {
  Weight weight;
  std::int64_t head_rows;
  std::int64_t row0;
  std::int64_t rows;
  bool transpose;
};

// y[i, h] = W_h x[i, h], or W_h^T x[i, h].
struct HeadMatmulOp {
  HeadMatrix matrix;
  int n_heads;
  View x;  // [n, n_heads heads at x_head_stride]
  std::int64_t x_head_stride;
  View y;  // [n, n_heads heads at y_head_stride]
  std::int64_t y_head_stride;
};

// Latent attention in its expanded form: keys and values of every head are multiplied out of the
// latents, once for all tokens. Up to rounding the absorbed form with the products around it;
// cheaper for many tokens.
struct ExpandedAttentionOp {
  const MlaSpec* spec;
  HeadMatrix keys;    // as the absorbed form multiplies queries with it: kv_rank from d_nope values
  HeadMatrix values;  // d_value values from a latent; not transposed
  View q;             // [n, n_heads * (d_nope + d_rope)]
  KvView kv;          // rows of one head: latent | rotary key
  View positions;     // I32 [1, n], one after the other
  View out;           // [n, n_heads * d_value]
};

// y[rows_out[i]] = down(act(gate x, up x)) of x[rows_in[i]]. Without lists: of row i, into row i.
struct FfnOp {
  Weight gate, up, down;
  View gate_bias = {}, up_bias = {}, down_bias = {};  // [1, d_ff], [1, d_ff], [1, d_model]
  FfnActivation activation = {};
  View x;              // [*, d_model]
  View rows_in = {};   // I32 [1, n]
  View rows_out = {};  // I32 [1, n]
  View hidden;         // scratch [n, d_ff]
  View y;              // [*, d_model]
};

// Chooses top_k experts for every row and weighs them.
struct RouteOp {
  const RouterSpec* router;
  View logits;                // [n, n_experts]
  View correction_bias = {};  // [1, n_experts]
  View expert_scales = {};    // [1, n_experts]: multiply the weights of the chosen
  View ids;                   // I32 [n, top_k], best first
  View weights;               // [n, top_k]
};

// The routed experts of all rows, looked up by the device: out[i * top_k + slot] is the
// feed-forward of expert ids[i, slot] over row i.
struct ExpertsOp {
  const MoeSpec* spec;
  int bank;
  View h;    // [n, d]
  View ids;  // I32 [n, top_k]
  ExpertTable table;
  Bytes mailbox;                                      // an ExpertMailbox
  View gate_bias = {}, up_bias = {}, down_bias = {};  // [n_experts, d_expert] twice, [n_experts, d]
  View hidden;                                        // scratch [n * top_k, d_expert]
  View out;                                           // [n * top_k, d]
};

// out[i] = sum over slots, in slot order, of weights[i, slot] * experts[i * top_k + slot], plus the
// shared expert.
struct CombineOp {
  View experts;           // [n * top_k, d]
  View weights;           // [n, top_k]
  View shared = {};       // [n, d]
  View shared_gate = {};  // [n, 1]: logits of the shared expert's sigmoid gate; without: unscaled
  View out;               // [n, d]
};

}  // namespace moeflux
