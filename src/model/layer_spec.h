// A layer as data: which mixer moves information between tokens, which feed-forward follows, with
// every size. Families produce these from a checkpoint's config; nothing after them knows a
// family's name.
#pragma once

#include <variant>

#include "model/rope.h"

namespace moeflux {

// Grouped-query attention whose query projection also yields a sigmoid gate for its output.
struct GatedAttentionSpec {
  int n_heads = 0;
  int n_kv_heads = 0;
  int d_head = 0;
  RopeSpec rope;
  float scale = 0;  // of q . k
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
  RopeSpec rope;
  float scale = 0;
  float latent_norm_eps = 0;
};

using MixerSpec = std::variant<GatedAttentionSpec, GatedDeltaSpec, MlaSpec>;

enum class RouterScoring { Softmax, Sigmoid };

struct RouterSpec {
  RouterScoring scoring = RouterScoring::Softmax;
  bool has_correction_bias = false;  // added for the choice only, not for the weights
  int n_groups = 1;
  int top_groups = 1;
  bool normalize = true;  // the chosen weights sum to 1 before `scale`
  float scale = 1;
};

struct DenseFfnSpec {
  int d_ff = 0;
};

struct MoeSpec {
  int n_experts = 0;
  int top_k = 0;
  int d_expert = 0;
  RouterSpec router;
  int d_shared = 0;              // 0: no shared expert
  bool shared_is_gated = false;  // the shared expert is scaled by a sigmoid of its own projection
};

using FfnSpec = std::variant<DenseFfnSpec, MoeSpec>;

struct LayerSpec {
  MixerSpec mixer;
  FfnSpec ffn;
};

}  // namespace moeflux
