#include "model/map_tensors.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

StoredMatrix matrix(const std::string& name) {
  StoredMatrix m;
  m.name = name;
  m.rows = 2;
  m.cols = 3;
  m.data.bytes = 24;
  return m;
}
StoredVector vector(const std::string& name) {
  StoredVector v;
  v.name = name;
  v.size = 3;
  v.data.bytes = 12;
  return v;
}

LayerTensors<Stored> attention_layer() {
  LayerTensors<Stored> layer;
  layer.mixer_norm = vector("mixer_norm");
  layer.ffn_norm = vector("ffn_norm");
  layer.mixer = GatedAttentionTensors<Stored>{matrix("q"), matrix("k"),      matrix("v"),
                                              matrix("o"), vector("q_norm"), vector("k_norm")};
  MoeTensors<Stored> moe;
  moe.router = matrix("router");
  moe.shared = {matrix("gate"), matrix("up"), matrix("down")};
  moe.bank = 7;
  layer.ffn = moe;
  return layer;
}

ModelTensors<Stored> small_model() {
  ModelTensors<Stored> model;
  model.embed = matrix("embed");
  model.final_norm = vector("final_norm");
  model.layers = {attention_layer()};
  model.mtp.emplace();
  model.mtp->fc = matrix("fc");
  model.mtp->layer.mixer = MlaTensors<Stored>{};
  model.mtp->layer.ffn = DenseFfnTensors<Stored>{matrix("mtp.gate"), {}, {}};
  return model;
}

template <class Tensors>
std::vector<std::string> names(const Tensors& tensors) {
  std::vector<std::string> found;
  for_each_tensor(tensors, [&](const auto& tensor) { found.push_back(tensor.name); });
  return found;
}

TEST(MapTensors, VisitsWhatIsThereInTheOrderOfAPass) {
  EXPECT_EQ(names(small_model()),
            (std::vector<std::string>{"embed", "mixer_norm", "q", "k", "v", "o", "q_norm", "k_norm",
                                      "ffn_norm", "router", "gate", "up", "down", "final_norm",
                                      "fc", "mtp.gate"}));
}

TEST(MapTensors, VisitsPartsOfAModel) {
  EXPECT_EQ(names(*small_model().mtp), (std::vector<std::string>{"fc", "mtp.gate"}));
  EXPECT_EQ(names(DenseFfnTensors<Stored>{matrix("a"), matrix("b"), {}}),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(names(ModelTensors<Stored>{}).empty());
}

// A form in which every slot is the name of the tensor that came to it.
struct Named {
  using Matrix = std::string;
  using Vector = std::string;
};

TEST(MapTensors, EverySlotGetsItsOwnTensor) {
  const ModelTensors<Named> named =
      map_tensors<Named>(small_model(), [](const auto& tensor) { return tensor.name; });
  EXPECT_EQ(named.embed, "embed");
  EXPECT_EQ(named.final_norm, "final_norm");
  EXPECT_EQ(named.head, "");
  ASSERT_EQ(named.layers.size(), 1u);
  const LayerTensors<Named>& layer = named.layers[0];
  EXPECT_EQ(layer.mixer_norm, "mixer_norm");
  EXPECT_EQ(layer.ffn_norm, "ffn_norm");
  const auto& attention = std::get<GatedAttentionTensors<Named>>(layer.mixer);
  EXPECT_EQ(attention.k, "k");
  EXPECT_EQ(attention.k_norm, "k_norm");
  const auto& moe = std::get<MoeTensors<Named>>(layer.ffn);
  EXPECT_EQ(moe.router, "router");
  EXPECT_EQ(moe.shared.down, "down");
  EXPECT_EQ(moe.shared_gate, "");
  EXPECT_EQ(moe.bank, 7);
  ASSERT_TRUE(named.mtp);
  EXPECT_EQ(named.mtp->fc, "fc");
  EXPECT_TRUE(std::holds_alternative<MlaTensors<Named>>(named.mtp->layer.mixer));
  EXPECT_EQ(std::get<DenseFfnTensors<Named>>(named.mtp->layer.ffn).gate, "mtp.gate");
}

TEST(MapTensors, DeltaAndLatentSlots) {
  const auto name = [](const auto& tensor) { return tensor.name; };
  const auto delta = map_tensors<Named>(
      GatedDeltaTensors<Stored>{matrix("qkv"), matrix("z"), matrix("b"), matrix("a"), matrix("out"),
                                vector("conv"), vector("a_log"), vector("dt_bias"), vector("norm")},
      name);
  EXPECT_EQ(delta.qkv + delta.z + delta.b + delta.a + delta.out, "qkvzbaout");
  EXPECT_EQ(delta.conv + delta.a_log + delta.dt_bias + delta.norm, "conva_logdt_biasnorm");
  const auto mla =
      map_tensors<Named>(MlaTensors<Stored>{matrix("q_a"), vector("q_a_norm"), matrix("q"),
                                            matrix("kv_a"), vector("kv_a_norm"), matrix("kv_b"),
                                            matrix("embed_q"), matrix("unembed"), matrix("o")},
                         name);
  EXPECT_EQ(mla.q_a + mla.q_a_norm + mla.q + mla.kv_a, "q_aq_a_normqkv_a");
  EXPECT_EQ(mla.kv_a_norm + mla.kv_b + mla.embed_q + mla.unembed + mla.o,
            "kv_a_normkv_bembed_qunembedo");
}

}  // namespace
}  // namespace moeflux
