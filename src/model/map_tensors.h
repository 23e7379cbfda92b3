// The one list of a model's tensors besides blocks.h: every slot of every block, in the order in
// which a pass needs them. Structured bindings name all members, so that a new one does not compile
// until it is listed here.
//
// map_tensors<Form>(stored, place) builds another form, slot by slot, and copies the specs; place()
// gets matrices and vectors, empty ones included. for_each_tensor(stored, visit) only looks, at
// those that are there.
#pragma once

#include <utility>
#include <variant>

#include "model/blocks.h"

namespace moeflux {

template <class To, class Place>
class TensorMapper {
 public:
  explicit TensorMapper(Place& place) : place_(place) {}

  // Braces evaluate from left to right.
  template <class From>
  Linear<To> operator()(const Linear<From>& t) {
    const auto& [weight, bias] = t;
    return {place_(weight), place_(bias)};
  }
  template <class From>
  Attention<To> operator()(const Attention<From>& t) {
    const auto& [spec, q, k, v, o, q_norm, k_norm, sinks] = t;
    return {spec,       (*this)(q),     (*this)(k),     (*this)(v),
            (*this)(o), place_(q_norm), place_(k_norm), place_(sinks)};
  }
  template <class From>
  GatedDelta<To> operator()(const GatedDelta<From>& t) {
    const auto& [spec, qkv, z, b, a, out, conv, a_log, dt_bias, norm] = t;
    return {spec,        place_(qkv),  place_(z),     place_(b),       place_(a),
            place_(out), place_(conv), place_(a_log), place_(dt_bias), place_(norm)};
  }
  template <class From>
  LatentAttention<To> operator()(const LatentAttention<From>& t) {
    const auto& [spec, q_a, q_a_norm, q, kv_a, kv_a_norm, kv_b, embed_q, unembed, o] = t;
    return {
        spec,         place_(q_a),     place_(q_a_norm), place_(q), place_(kv_a), place_(kv_a_norm),
        place_(kv_b), place_(embed_q), place_(unembed),  place_(o)};
  }
  template <class From>
  FeedForward<To> operator()(const FeedForward<From>& t) {
    const auto& [spec, gate, up, down] = t;
    return {spec, (*this)(gate), (*this)(up), (*this)(down)};
  }
  template <class From>
  Moe<To> operator()(const Moe<From>& t) {
    const auto& [spec, router_norm, router, correction_bias, expert_scales, shared, shared_gate,
                 shared_post_norm, expert_norm, expert_post_norm, gate_bias, up_bias, down_bias,
                 bank] = t;
    return {spec,
            place_(router_norm),
            (*this)(router),
            place_(correction_bias),
            place_(expert_scales),
            (*this)(shared),
            place_(shared_gate),
            place_(shared_post_norm),
            place_(expert_norm),
            place_(expert_post_norm),
            place_(gate_bias),
            place_(up_bias),
            place_(down_bias),
            bank};
  }
  template <class From>
  Layer<To> operator()(const Layer<From>& t) {
    const auto& [mixer_norm, mixer, mixer_post_norm, ffn_norm, ffn, ffn_post_norm, scale] = t;
    return {
        place_(mixer_norm),
        std::visit([&](const auto& block) -> Mixer<To> { return (*this)(block); }, mixer),
        place_(mixer_post_norm),
        place_(ffn_norm),
        std::visit([&](const auto& block) -> FfnBlock<To> { return (*this)(block); }, ffn),
        place_(ffn_post_norm),
        place_(scale),
    };
  }
  template <class From>
  MtpTensors<To> operator()(const MtpTensors<From>& t) {
    const auto& [embed_norm, hidden_norm, fc, layer, final_norm] = t;
    return {place_(embed_norm), place_(hidden_norm), place_(fc), (*this)(layer),
            place_(final_norm)};
  }
  template <class From>
  ModelTensors<To> operator()(const ModelTensors<From>& t) {
    const auto& [embed, final_norm, head, layers, mtp] = t;
    ModelTensors<To> model{};
    model.embed = place_(embed);
    for (const auto& layer : layers) model.layers.push_back((*this)(layer));
    model.final_norm = place_(final_norm);
    model.head = place_(head);
    if (mtp) model.mtp = (*this)(*mtp);
    return model;
  }

 private:
  Place& place_;
};

// `tensors`: those of a model, or of any part of one. Returns the same part in the other form.
template <class To, class Tensors, class Place>
auto map_tensors(const Tensors& tensors, Place place) {
  return TensorMapper<To, Place>(place)(tensors);
}

// The form of a walk that builds nothing.
struct Visited {
  struct Matrix {};
  using Vector = Matrix;
};

template <class Tensors, class Visit>
void for_each_tensor(const Tensors& tensors, Visit visit) {
  map_tensors<Visited>(tensors, [&](const auto& tensor) {
    if (!tensor.empty()) visit(tensor);
    return Visited::Matrix{};
  });
}

}  // namespace moeflux
