#include "runtime/weight_store.h"

#include <vector>

#include "base/error.h"
#include "quant/codec.h"

namespace moeflux {
namespace {

constexpr std::uint64_t kAlignment = 64;

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Walks all tensors of a model and turns the Stored form into the Resident form with `place`, which handles one
// matrix or one vector. The walk is the only list of tensors besides model_tensors.h.
template <class Place>
class Mapper {
 public:
  explicit Mapper(Place place) : place_(place) {}

  GatedAttentionTensors<Resident> operator()(const GatedAttentionTensors<Stored>& t) const {
    return {place_(t.q), place_(t.k), place_(t.v), place_(t.o), place_(t.q_norm), place_(t.k_norm)};
  }
  GatedDeltaTensors<Resident> operator()(const GatedDeltaTensors<Stored>& t) const {
    return {place_(t.qkv),  place_(t.z),     place_(t.b),       place_(t.a),   place_(t.out),
            place_(t.conv), place_(t.a_log), place_(t.dt_bias), place_(t.norm)};
  }
  MlaTensors<Resident> operator()(const MlaTensors<Stored>& t) const {
    return {place_(t.q_a),  place_(t.q_a_norm), place_(t.q),       place_(t.kv_a), place_(t.kv_a_norm),
            place_(t.kv_b), place_(t.embed_q),  place_(t.unembed), place_(t.o)};
  }
  DenseFfnTensors<Resident> operator()(const DenseFfnTensors<Stored>& t) const {
    return {place_(t.gate), place_(t.up), place_(t.down)};
  }
  MoeTensors<Resident> operator()(const MoeTensors<Stored>& t) const {
    return {place_(t.router), place_(t.correction_bias), (*this)(t.shared), place_(t.shared_gate), t.bank};
  }
  LayerTensors<Resident> operator()(const LayerTensors<Stored>& t) const {
    LayerTensors<Resident> layer{place_(t.mixer_norm), place_(t.ffn_norm), {}, {}};
    std::visit([&](const auto& mixer) { layer.mixer = (*this)(mixer); }, t.mixer);
    std::visit([&](const auto& ffn) { layer.ffn = (*this)(ffn); }, t.ffn);
    return layer;
  }
  MtpTensors<Resident> operator()(const MtpTensors<Stored>& t) const {
    return {place_(t.embed_norm), place_(t.hidden_norm), place_(t.fc), (*this)(t.layer), place_(t.final_norm)};
  }
  ModelTensors<Resident> operator()(const ModelTensors<Stored>& t) const {
    ModelTensors<Resident> model{place_(t.embed), place_(t.final_norm), place_(t.head), {}, {}};
    if (t.head.empty()) model.head = model.embed;
    for (const auto& layer : t.layers) model.layers.push_back((*this)(layer));
    if (t.mtp) model.mtp = (*this)(*t.mtp);
    return model;
  }

 private:
  Place place_;
};

// Counts the bytes the loader below will use.
struct Counter {
  std::uint64_t* total;
  WeightView operator()(const StoredMatrix& m) const {
    *total += aligned(m.data.bytes) + aligned(m.scales.bytes) + aligned(m.biases.bytes);
    return {};
  }
  const float* operator()(const StoredVector& v) const {
    *total += aligned(static_cast<std::uint64_t>(v.size) * sizeof(float));
    return nullptr;
  }
};

class Loader {
 public:
  Loader(const ModelSource& source, AlignedBuffer& memory, const LoadProgress& progress)
      : source_(source), memory_(memory), progress_(progress) {}

  WeightView load(const StoredMatrix& m) {
    WeightView view{.format = m.format, .rows = m.rows, .cols = m.cols, .block_row0 = m.block_row0};
    view.data = plane(m.data);
    view.scales = plane(m.scales);
    view.biases = plane(m.biases);
    return view;
  }

  const float* load(const StoredVector& v) {
    if (v.empty()) return nullptr;
    raw_.resize(v.data.bytes);
    source_.read(v.data, raw_);
    auto* out = static_cast<float*>(static_cast<void*>(take(static_cast<std::uint64_t>(v.size) * sizeof(float))));
    decode_floats(v.dtype, raw_.data(), v.size, out);
    for (std::int64_t i = 0; i < v.size; ++i) out[i] += v.shift;
    return out;
  }

 private:
  const std::byte* plane(const Extent& extent) {
    if (extent.bytes == 0) return nullptr;
    std::byte* out = take(extent.bytes);
    source_.read(extent, {out, extent.bytes});
    return out;
  }

  std::byte* take(std::uint64_t bytes) {
    MOEFLUX_ASSERT(used_ + aligned(bytes) <= memory_.size());
    std::byte* out = memory_.data() + used_;
    used_ += aligned(bytes);
    if (progress_) progress_(used_, memory_.size());
    return out;
  }

  const ModelSource& source_;
  AlignedBuffer& memory_;
  const LoadProgress& progress_;
  std::uint64_t used_ = 0;
  std::vector<std::byte> raw_;
};

}  // namespace

std::uint64_t WeightStore::bytes_needed(const ModelTensors<Stored>& stored) {
  std::uint64_t total = 0;
  Mapper(Counter{&total})(stored);
  return total;
}

WeightStore::WeightStore(const ModelSource& source, const ModelTensors<Stored>& stored, MemoryBudget& budget,
                         const LoadProgress& progress)
    : reservation_(budget.reserve("dense weights", bytes_needed(stored))), memory_(reservation_.bytes()) {
  Loader loader(source, memory_, progress);
  tensors_ = Mapper([&](const auto& tensor) { return loader.load(tensor); })(stored);
}

}  // namespace moeflux
