// The weights a model needs, slot by slot, in two forms: Stored (where each lies in the
// checkpoint's files) and Resident (where each lies in memory). One definition for both, so that a
// tensor cannot be forgotten between them. Shapes are [rows, cols] of y = W x; sizes are those of
// model/layer_spec.h.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "model/stored_tensor.h"

namespace moeflux {

struct Stored {
  using Matrix = StoredMatrix;
  using Vector = StoredVector;
};
struct Resident {
  using Matrix = WeightView;
  using Vector = const float*;
};

template <class Form>
struct GatedAttentionTensors {
  typename Form::Matrix
      q;  // [2 * n_heads * d_head, d_model]: per head the query rows, then the gate rows
  typename Form::Matrix k;       // [n_kv_heads * d_head, d_model]
  typename Form::Matrix v;       // [n_kv_heads * d_head, d_model]
  typename Form::Matrix o;       // [d_model, n_heads * d_head]
  typename Form::Vector q_norm;  // [d_head]
  typename Form::Vector k_norm;  // [d_head]
};

template <class Form>
struct GatedDeltaTensors {
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
struct MlaTensors {
  typename Form::Matrix q_a;        // [q_rank, d_model]; empty without q_rank
  typename Form::Vector q_a_norm;   // [q_rank]
  typename Form::Matrix q;          // [n_heads * (d_nope + d_rope), q_rank or d_model]
  typename Form::Matrix kv_a;       // [kv_rank + d_rope, d_model]
  typename Form::Vector kv_a_norm;  // [kv_rank]
  // Either kv_b, or the pair that newer conversions split it into.
  typename Form::Matrix
      kv_b;  // [n_heads * (d_nope + d_value), kv_rank]: per head key rows, then value rows
  typename Form::Matrix embed_q;  // [n_heads * kv_rank, d_nope]: per head the transposed key rows
  typename Form::Matrix unembed;  // [n_heads * d_value, kv_rank]
  typename Form::Matrix o;        // [d_model, n_heads * d_value]
};

template <class Form>
struct DenseFfnTensors {
  typename Form::Matrix gate;  // [d_ff, d_model]
  typename Form::Matrix up;    // [d_ff, d_model]
  typename Form::Matrix down;  // [d_model, d_ff]
};

template <class Form>
struct MoeTensors {
  typename Form::Matrix router;           // [n_experts, d_model]
  typename Form::Vector correction_bias;  // [n_experts]; empty without one
  DenseFfnTensors<Form> shared;           // d_ff = d_shared; empty without one
  typename Form::Matrix shared_gate;      // [1, d_model]; empty when the shared expert is not gated
  int bank = -1;  // which bank of routed experts (ModelIndex::experts) this layer uses
};

template <class Form>
struct LayerTensors {
  typename Form::Vector mixer_norm;  // [d_model]
  typename Form::Vector ffn_norm;    // [d_model]
  std::variant<GatedAttentionTensors<Form>, GatedDeltaTensors<Form>, MlaTensors<Form>> mixer;
  std::variant<DenseFfnTensors<Form>, MoeTensors<Form>> ffn;
};

// Multi-token prediction: drafts token t+2 from the trunk's output at t and the embedding of token
// t+1.
template <class Form>
struct MtpTensors {
  typename Form::Vector embed_norm;   // [d_model]
  typename Form::Vector hidden_norm;  // [d_model]
  typename Form::Matrix fc;           // [d_model, 2 * d_model], embedding half first
  LayerTensors<Form> layer;
  typename Form::Vector final_norm;  // [d_model]
};

template <class Form>
struct ModelTensors {
  typename Form::Matrix embed;       // [n_vocab, d_model]
  typename Form::Vector final_norm;  // [d_model]
  typename Form::Matrix head;        // [n_vocab, d_model]; empty when tied to embed
  std::vector<LayerTensors<Form>> layers;
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
