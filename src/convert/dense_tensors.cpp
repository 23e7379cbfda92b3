#include "convert/dense_tensors.h"

#include <map>
#include <set>
#include <utility>

#include "base/error.h"

namespace moeflux {
namespace {

// The structured bindings name every member: a new one does not compile until it is listed here.
template <class Visit>
class Walk {
 public:
  explicit Walk(Visit visit) : visit_(std::move(visit)) {}

  void operator()(const ModelTensors<Stored>& t) {
    const auto& [embed, final_norm, head, layers, mtp] = t;
    each(embed);
    for (const auto& layer : layers) (*this)(layer);
    each(final_norm, head);
    if (mtp) (*this)(*mtp);
  }

 private:
  template <class... Tensors>
  void each(const Tensors&... tensors) {
    (take(tensors), ...);
  }
  template <class Tensor>
  void take(const Tensor& tensor) {
    if (!tensor.empty()) visit_(tensor);
  }

  void operator()(const GatedAttentionTensors<Stored>& t) {
    const auto& [q, k, v, o, q_norm, k_norm] = t;
    each(q, k, v, o, q_norm, k_norm);
  }
  void operator()(const GatedDeltaTensors<Stored>& t) {
    const auto& [qkv, z, b, a, out, conv, a_log, dt_bias, norm] = t;
    each(qkv, z, b, a, out, conv, a_log, dt_bias, norm);
  }
  void operator()(const MlaTensors<Stored>& t) {
    const auto& [q_a, q_a_norm, q, kv_a, kv_a_norm, kv_b, embed_q, unembed, o] = t;
    each(q_a, q_a_norm, q, kv_a, kv_a_norm, kv_b, embed_q, unembed, o);
  }
  void operator()(const DenseFfnTensors<Stored>& t) {
    const auto& [gate, up, down] = t;
    each(gate, up, down);
  }
  void operator()(const MoeTensors<Stored>& t) {
    const auto& [router, correction_bias, shared, shared_gate, bank] = t;
    each(router, correction_bias);
    (*this)(shared);
    each(shared_gate);
    static_cast<void>(bank);
  }
  void operator()(const LayerTensors<Stored>& t) {
    const auto& [mixer_norm, ffn_norm, mixer, ffn] = t;
    each(mixer_norm);
    std::visit([&](const auto& tensors) { (*this)(tensors); }, mixer);
    each(ffn_norm);
    std::visit([&](const auto& tensors) { (*this)(tensors); }, ffn);
  }
  void operator()(const MtpTensors<Stored>& t) {
    const auto& [embed_norm, hidden_norm, fc, layer, final_norm] = t;
    each(embed_norm, hidden_norm, fc);
    (*this)(layer);
    each(final_norm);
  }

  Visit visit_;
};

// From bytes back to the tensor that holds them.
class Reverse {
 public:
  explicit Reverse(const ModelSource& source) {
    for (const auto& [name, info] : source.tensors()) {
      if (info.bytes > 0 && info.contiguous()) {
        by_place_[{info.file, info.offset}] = {&name, info.offset + info.bytes};
      }
    }
  }

  const std::string& name_of(const Extent& extent, const std::string& what) const {
    auto it = by_place_.upper_bound({extent.file, extent.offset});
    if (it != by_place_.begin()) {
      const auto& [place, held] = *--it;
      if (place.first == extent.file && extent.offset + extent.bytes <= held.end) return *held.name;
    }
    fail(Errc::Unsupported, "{}: does not lie in one tensor of the source", what);
  }

 private:
  struct Held {
    const std::string* name = nullptr;
    std::uint64_t end = 0;
  };
  std::map<std::pair<int, std::uint64_t>, Held> by_place_;
};

std::vector<Extent> planes(const StoredMatrix& m) {
  return {m.data, m.scales, m.biases};
}
std::vector<Extent> planes(const StoredVector& v) {
  return {v.data};
}

struct Collector {
  DenseWeights* out;
  void operator()(const StoredMatrix& m) const { out->matrices.push_back(m); }
  void operator()(const StoredVector& v) const { out->vectors.push_back(v); }
};

}  // namespace

DenseWeights dense_weights(const ModelTensors<Stored>& tensors) {
  DenseWeights weights;
  Walk(Collector{&weights})(tensors);
  return weights;
}

std::vector<std::string> dense_tensor_names(const ModelSource& source,
                                            const ModelTensors<Stored>& tensors) {
  const Reverse reverse(source);
  std::vector<std::string> names;
  std::set<std::string> seen;
  Walk([&](const auto& tensor) {
    for (const Extent& plane : planes(tensor)) {
      if (plane.bytes == 0) continue;
      const std::string& name = reverse.name_of(plane, tensor.name);
      if (seen.insert(name).second) names.push_back(name);
    }
  })(tensors);
  return names;
}

}  // namespace moeflux
