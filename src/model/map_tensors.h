// The one list of a model's tensors besides model_tensors.h: every slot of every layer, in the
// order in which a pass needs them. Structured bindings name all members, so that a new one does
// not compile until it is listed here.
//
// map_tensors<Resident>(stored, place) builds another form, slot by slot; place() gets matrices and
// vectors, empty ones included. for_each_tensor(stored, visit) only looks, at those that are there.
#pragma once

#include <utility>
#include <variant>

#include "model/model_tensors.h"

namespace moeflux {

template <class To, class Place>
class TensorMapper {
 public:
  explicit TensorMapper(Place& place) : place_(place) {}

  // Braces evaluate from left to right.
  template <class From>
  GatedAttentionTensors<To> operator()(const GatedAttentionTensors<From>& t) {
    const auto& [q, k, v, o, q_norm, k_norm] = t;
    return {place_(q), place_(k), place_(v), place_(o), place_(q_norm), place_(k_norm)};
  }
  template <class From>
  GatedDeltaTensors<To> operator()(const GatedDeltaTensors<From>& t) {
    const auto& [qkv, z, b, a, out, conv, a_log, dt_bias, norm] = t;
    return {place_(qkv),  place_(z),     place_(b),       place_(a),   place_(out),
            place_(conv), place_(a_log), place_(dt_bias), place_(norm)};
  }
  template <class From>
  MlaTensors<To> operator()(const MlaTensors<From>& t) {
    const auto& [q_a, q_a_norm, q, kv_a, kv_a_norm, kv_b, embed_q, unembed, o] = t;
    return {place_(q_a),  place_(q_a_norm), place_(q),       place_(kv_a), place_(kv_a_norm),
            place_(kv_b), place_(embed_q),  place_(unembed), place_(o)};
  }
  template <class From>
  DenseFfnTensors<To> operator()(const DenseFfnTensors<From>& t) {
    const auto& [gate, up, down] = t;
    return {place_(gate), place_(up), place_(down)};
  }
  template <class From>
  MoeTensors<To> operator()(const MoeTensors<From>& t) {
    const auto& [router, correction_bias, shared, shared_gate, bank] = t;
    return {place_(router), place_(correction_bias), (*this)(shared), place_(shared_gate), bank};
  }
  template <class From>
  LayerTensors<To> operator()(const LayerTensors<From>& t) {
    const auto& [mixer_norm, ffn_norm, mixer, ffn] = t;
    LayerTensors<To> layer{};
    layer.mixer_norm = place_(mixer_norm);
    std::visit([&](const auto& tensors) { layer.mixer = (*this)(tensors); }, mixer);
    layer.ffn_norm = place_(ffn_norm);
    std::visit([&](const auto& tensors) { layer.ffn = (*this)(tensors); }, ffn);
    return layer;
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
