// The blocks a model is made of: each holds its spec (model/layer_spec.h) and its weights together,
// so that the two cannot contradict each other. A block has a Form: Stored (where each weight lies
// in the checkpoint's files) or another with the same two types, such as the weights in memory
// (runtime/weight_store.h). One definition for all, so that a tensor cannot be forgotten between
// them. Shapes are [rows, cols] of y = W x; a weight that a model does not have is empty.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "model/layer_spec.h"
#include "model/stored_tensor.h"

namespace moeflux {

struct Stored {
  using Matrix = StoredMatrix;
  using Vector = StoredVector;
};

// y = W x + bias
template <class Form>
struct Linear {
  typename Form::Matrix weight;
  typename Form::Vector bias;
};

template <class Form>
struct Attention {
  AttentionSpec spec;
  Linear<Form> q;  // [n_heads * query_head, d_model]: per head the query rows, then the gate rows
  Linear<Form> k;  // [kv_dim, d_model]
  Linear<Form> v;  // [kv_dim, d_model]; empty where values are keys
  Linear<Form> o;  // [d_model, q_dim]
  typename Form::Vector q_norm;  // [d_head], or [q_dim] over the whole row
  typename Form::Vector k_norm;  // [d_head], or [kv_dim]
  typename Form::Vector sinks;   // [n_heads]
};

template <class Form>
struct GatedDelta {
  GatedDeltaSpec spec;
  typename Form::Matrix qkv;      // [conv_dim, d_model]: all q rows, all k rows, all v rows
  typename Form::Matrix z;        // [value_dim, d_model]
  typename Form::Matrix b;        // [n_value_heads, d_model]
  typename Form::Matrix a;        // [n_value_heads, d_model]
  typename Form::Matrix out;      // [d_model, value_dim]
  typename Form::Vector conv;     // [conv_width, conv_dim], the last tap is the current token's
  typename Form::Vector a_log;    // [n_value_heads]
  typename Form::Vector dt_bias;  // [n_value_heads]
  typename Form::Vector norm;     // [d_value]
};

template <class Form>
struct LatentAttention {
  MlaSpec spec;
  typename Form::Matrix q_a;        // [q_rank, d_model]; empty without q_rank
  typename Form::Vector q_a_norm;   // [q_rank]
  typename Form::Matrix q;          // [n_heads * d_query, q_rank or d_model]
  typename Form::Matrix kv_a;       // [d_row, d_model]
  typename Form::Vector kv_a_norm;  // [kv_rank]
  // Either kv_b, or the pair that newer conversions split it into.
  typename Form::Matrix
      kv_b;  // [n_heads * (d_nope + d_value), kv_rank]: per head key rows, then value rows
  typename Form::Matrix embed_q;  // [n_heads * kv_rank, d_nope]: per head the transposed key rows
  typename Form::Matrix unembed;  // [n_heads * d_value, kv_rank]
  typename Form::Matrix o;        // [d_model, n_heads * d_value]
};

template <class Form>
struct FeedForward {
  DenseFfnSpec spec;
  Linear<Form> gate;  // [d_ff, d_model]
  Linear<Form> up;    // [d_ff, d_model]
  Linear<Form> down;  // [d_model, d_ff]
};

template <class Form>
struct Moe {
  MoeSpec spec;
  typename Form::Vector router_norm;                                      // [d_model]
  Linear<Form> router;                                                    // [n_experts, d_model]
  typename Form::Vector correction_bias;                                  // [n_experts]
  typename Form::Vector expert_scales;                                    // [n_experts]
  FeedForward<Form> shared;                                               // d_ff = d_shared
  typename Form::Matrix shared_gate;                                      // [1, d_model]
  typename Form::Vector shared_post_norm, expert_norm, expert_post_norm;  // [d_model]
  // Biases of the routed experts, which stay in memory: [n_experts, d_expert] twice, and
  // [n_experts, d_model].
  typename Form::Vector gate_bias, up_bias, down_bias;
  int bank = -1;  // which bank of routed experts (ModelIndex::experts) this layer uses
};

template <class Form>
using Mixer = std::variant<Attention<Form>, GatedDelta<Form>, LatentAttention<Form>>;
template <class Form>
using FfnBlock = std::variant<FeedForward<Form>, Moe<Form>>;

// x <- x + mixer(norm(x)); x <- (x + ffn(norm(x))) * scale, where what is added may have a norm of
// its own
template <class Form>
struct Layer {
  typename Form::Vector mixer_norm;  // [d_model]
  Mixer<Form> mixer;
  typename Form::Vector mixer_post_norm;  // [d_model]
  typename Form::Vector ffn_norm;         // [d_model]
  FfnBlock<Form> ffn;
  typename Form::Vector ffn_post_norm;  // [d_model]
  typename Form::Vector scale;          // [1]
};

// Multi-token prediction: drafts token t+2 from the trunk's output at t and the embedding of token
// t+1.
template <class Form>
struct MtpTensors {
  typename Form::Vector embed_norm;   // [d_model]
  typename Form::Vector hidden_norm;  // [d_model]
  typename Form::Matrix fc;           // [d_model, 2 * d_model], embedding half first
  Layer<Form> layer;
  typename Form::Vector final_norm;  // [d_model]
};

template <class Form>
struct ModelTensors {
  typename Form::Matrix embed;       // [n_vocab, d_model]
  typename Form::Vector final_norm;  // [d_model]
  typename Form::Matrix head;        // [n_vocab, d_model]; empty when tied to embed
  std::vector<Layer<Form>> layers;
  std::optional<MtpTensors<Form>> mtp;
};

// All routed experts of one layer. They stay in the files until the router asks for them.
struct ExpertBank {
  StoredExpertBank gate;  // [d_expert, d_model] each
  StoredExpertBank up;    // [d_expert, d_model]
  StoredExpertBank down;  // [d_model, d_expert]
};

// What a family reads out of a checkpoint.
struct ModelIndex {
  ModelTensors<Stored> tensors;
  std::vector<ExpertBank> experts;
};

}  // namespace moeflux
