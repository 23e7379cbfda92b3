// A layer as data: which mixer moves information between tokens, which feed-forward follows, with
// every size. Families produce these from a checkpoint's config; nothing that computes knows a
// family's name.
#pragma once

#include <variant>

#include "model/rope.h"

namespace moeflux {

enum class QkNorm {
  None,
  PerHead,   // over the d_head values of each head
  WholeRow,  // over all heads of a projection together
};

// Grouped-query attention.
struct AttentionSpec {
  int n_heads = 0;
  int n_kv_heads = 0;
  int d_head = 0;
  bool has_output_gate = false;  // the query projection also yields a sigmoid gate for the output
  QkNorm qk_norm = QkNorm::None;
  float qkv_limit = 0;           // normed queries, normed keys and values are clamped to it; 0: not
  bool has_value_norm = false;   // of each head, without weights
  bool values_are_keys = false;  // values come from the key projection, before its norm
  bool has_bias = false;         // of the query, key and value projections
  bool has_out_bias = false;     // of the output projection
  bool has_sinks = false;        // a learned score per head takes part in the softmax
  int window = 0;                // a token sees itself and window - 1 before it; 0: all before it
  RopeSpec rope = {};            // n_rot 0: no rotation
  float scale = 0;               // of q . k

  int q_dim() const { return n_heads * d_head; }
  int kv_dim() const { return n_kv_heads * d_head; }
  int query_head() const { return has_output_gate ? 2 * d_head : d_head; }  // rows of q per head
};

enum class GateActivation { Silu, Sigmoid };

inline constexpr int kMaxConvWidth = 64;

// Gated delta rule: linear attention with a recurrent state [d_key, d_value] per value head, fed by
// a short causal convolution.
struct GatedDeltaSpec {
  int n_key_heads = 0;
  int n_value_heads = 0;
  int d_key = 0;
  int d_value = 0;
  int conv_width = 0;  // at most kMaxConvWidth
  GateActivation output_gate = GateActivation::Silu;
  // Which key head value head j shares: j mod n_key_heads, or j / (value heads of a key head).
  bool heads_alternate = false;

  int key_head_of(int value_head) const {
    return heads_alternate ? value_head % n_key_heads : value_head / (n_value_heads / n_key_heads);
  }
  int key_dim() const { return n_key_heads * d_key; }
  int value_dim() const { return n_value_heads * d_value; }
  int conv_dim() const { return 2 * key_dim() + value_dim(); }
};

// Multi-head latent attention: the cache holds one latent and one rotary key per token, shared by
// all heads.
struct MlaSpec {
  int n_heads = 0;
  int q_rank = 0;  // 0: queries are projected directly
  int kv_rank = 0;
  int d_nope = 0;
  int d_rope = 0;
  int d_value = 0;
  RopeSpec rope = {};
  float scale = 0;
  float latent_norm_eps = 0;

  int d_query() const { return d_nope + d_rope; }
  int d_row() const { return kv_rank + d_rope; }  // of the cache
};

using MixerSpec = std::variant<AttentionSpec, GatedDeltaSpec, MlaSpec>;

// What becomes of a gate and an up value.
struct FfnActivation {
  enum class Kind {
    Silu,           // silu(gate) * up
    Gelu,           // gelu(gate) * up, with the tanh approximation
    ClampedSwiglu,  // gate * sigmoid(alpha * gate) * (up + 1), gate at most limit, up within it
  };
  Kind kind = Kind::Silu;
  float alpha = 0;  // of ClampedSwiglu
  float limit = 0;

  friend bool operator==(const FfnActivation&, const FfnActivation&) = default;
};

enum class RouterScoring { Softmax, Sigmoid };

struct RouterSpec {
  RouterScoring scoring = RouterScoring::Softmax;
  bool scores_chosen = false;        // logits choose, and only the chosen are scored
  bool has_bias = false;             // of the projection
  bool has_norm = false;             // reads a norm of the stream that is its own
  bool has_expert_scales = false;    // a learned factor of each expert's weight
  bool has_correction_bias = false;  // added for the choice only, not for the weights
  int n_groups = 1;
  int top_groups = 1;
  bool normalize = true;  // the chosen weights sum to 1 before `scale`
  float scale = 1;
};

struct DenseFfnSpec {
  int d_ff = 0;
  FfnActivation activation = {};
  bool has_bias = false;
};

struct MoeSpec {
  int n_experts = 0;
  int top_k = 0;
  int d_expert = 0;
  RouterSpec router = {};
  FfnActivation activation = {};  // of routed and shared experts
  bool has_expert_bias = false;   // of every routed expert's three projections
  int d_shared = 0;               // 0: no shared expert
  bool shared_is_gated = false;   // the shared expert is scaled by a sigmoid of its own projection
  // Routed experts read a norm of the stream that is their own, and what they yield and what the
  // shared expert yields have norms, too.
  bool has_part_norms = false;
};

using FfnSpec = std::variant<DenseFfnSpec, MoeSpec>;

struct LayerSpec {
  MixerSpec mixer;
  FfnSpec ffn;
  bool has_post_norms = false;  // what mixer and feed-forward add to the stream is normed first
  bool has_scale = false;       // a learned factor of the stream after this layer
};

}  // namespace moeflux
