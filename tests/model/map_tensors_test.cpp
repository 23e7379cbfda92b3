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

Linear<Stored> linear(const std::string& name) {
  return {matrix(name), {}};
}
Linear<Stored> biased(const std::string& name) {
  return {matrix(name), vector(name + ".bias")};
}

Layer<Stored> attention_layer() {
  Layer<Stored> layer;
  layer.mixer_norm = vector("mixer_norm");
  layer.ffn_norm = vector("ffn_norm");
  layer.mixer = Attention<Stored>{.spec = {.n_heads = 4, .rope = make_rope(1e4, 8, false)},
                                  .q = linear("q"),
                                  .k = linear("k"),
                                  .v = linear("v"),
                                  .o = linear("o"),
                                  .q_norm = vector("q_norm"),
                                  .k_norm = vector("k_norm"),
                                  .sinks = {}};
  Moe<Stored> moe;
  moe.spec.n_experts = 8;
  moe.router = linear("router");
  moe.shared = {{.d_ff = 24}, linear("gate"), linear("up"), linear("down")};
  moe.bank = 7;
  layer.ffn = moe;
  return layer;
}

// Every option a block has, on.
Layer<Stored> full_layer() {
  Layer<Stored> layer;
  layer.mixer = Attention<Stored>{.spec = {.has_sinks = true, .window = 128},
                                  .q = biased("q"),
                                  .k = biased("k"),
                                  .v = biased("v"),
                                  .o = biased("o"),
                                  .q_norm = vector("q_norm"),
                                  .k_norm = vector("k_norm"),
                                  .sinks = vector("sinks")};
  layer.ffn = Moe<Stored>{.spec = {.has_expert_bias = true},
                          .router_norm = vector("router_norm"),
                          .router = biased("router"),
                          .correction_bias = vector("correction"),
                          .expert_scales = vector("expert_scales"),
                          .shared = {{}, biased("gate"), biased("up"), biased("down")},
                          .shared_gate = matrix("shared_gate"),
                          .shared_post_norm = vector("shared_post_norm"),
                          .expert_norm = vector("expert_norm"),
                          .expert_post_norm = vector("expert_post_norm"),
                          .gate_bias = vector("gate_bias"),
                          .up_bias = vector("up_bias"),
                          .down_bias = vector("down_bias"),
                          .bank = 3};
  layer.scale = vector("scale");
  return layer;
}

ModelTensors<Stored> small_model() {
  ModelTensors<Stored> model;
  model.embed = matrix("embed");
  model.final_norm = vector("final_norm");
  model.layers = {attention_layer()};
  model.mtp.emplace();
  model.mtp->fc = matrix("fc");
  LatentAttention<Stored> latent;
  latent.spec.kv_rank = 32;
  model.mtp->layer.mixer = latent;
  model.mtp->layer.ffn = FeedForward<Stored>{{.d_ff = 96}, linear("mtp.gate"), {}, {}};
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
  EXPECT_EQ(names(FeedForward<Stored>{{}, linear("a"), linear("b"), {}}),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(names(ModelTensors<Stored>{}).empty());
}

TEST(MapTensors, VisitsNormsOfWhatIsAdded) {
  Layer<Stored> layer = attention_layer();
  layer.mixer_post_norm = vector("mixer_post_norm");
  layer.ffn_post_norm = vector("ffn_post_norm");
  EXPECT_EQ(names(layer),
            (std::vector<std::string>{"mixer_norm", "q", "k", "v", "o", "q_norm", "k_norm",
                                      "mixer_post_norm", "ffn_norm", "router", "gate", "up", "down",
                                      "ffn_post_norm"}));
}

TEST(MapTensors, VisitsBiasesAndSinks) {
  EXPECT_EQ(names(full_layer()), (std::vector<std::string>{"q",           "q.bias",
                                                           "k",           "k.bias",
                                                           "v",           "v.bias",
                                                           "o",           "o.bias",
                                                           "q_norm",      "k_norm",
                                                           "sinks",       "router_norm",
                                                           "router",      "router.bias",
                                                           "correction",  "expert_scales",
                                                           "gate",        "gate.bias",
                                                           "up",          "up.bias",
                                                           "down",        "down.bias",
                                                           "shared_gate", "shared_post_norm",
                                                           "expert_norm", "expert_post_norm",
                                                           "gate_bias",   "up_bias",
                                                           "down_bias",   "scale"}));
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
  const Layer<Named>& layer = named.layers[0];
  EXPECT_EQ(layer.mixer_norm, "mixer_norm");
  EXPECT_EQ(layer.ffn_norm, "ffn_norm");
  const auto& attention = std::get<Attention<Named>>(layer.mixer);
  EXPECT_EQ(attention.k.weight, "k");
  EXPECT_EQ(attention.k.bias, "");
  EXPECT_EQ(attention.k_norm, "k_norm");
  const auto& moe = std::get<Moe<Named>>(layer.ffn);
  EXPECT_EQ(moe.router.weight, "router");
  EXPECT_EQ(moe.shared.down.weight, "down");
  EXPECT_EQ(moe.shared_gate, "");
  EXPECT_EQ(moe.bank, 7);
  ASSERT_TRUE(named.mtp);
  EXPECT_EQ(named.mtp->fc, "fc");
  EXPECT_TRUE(std::holds_alternative<LatentAttention<Named>>(named.mtp->layer.mixer));
  EXPECT_EQ(std::get<FeedForward<Named>>(named.mtp->layer.ffn).gate.weight, "mtp.gate");
}

TEST(MapTensors, BiasesAndSinksGetTheirOwn) {
  const auto layer =
      map_tensors<Named>(full_layer(), [](const auto& tensor) { return tensor.name; });
  const auto& attention = std::get<Attention<Named>>(layer.mixer);
  EXPECT_EQ(attention.q.bias, "q.bias");
  EXPECT_EQ(attention.k.bias, "k.bias");
  EXPECT_EQ(attention.v.bias, "v.bias");
  EXPECT_EQ(attention.o.bias, "o.bias");
  EXPECT_EQ(attention.sinks, "sinks");
  const auto& moe = std::get<Moe<Named>>(layer.ffn);
  EXPECT_EQ(moe.router.bias, "router.bias");
  EXPECT_EQ(moe.correction_bias, "correction");
  EXPECT_EQ(moe.shared.gate.bias, "gate.bias");
  EXPECT_EQ(moe.shared.up.bias, "up.bias");
  EXPECT_EQ(moe.shared.down.bias, "down.bias");
  EXPECT_EQ(moe.shared_gate, "shared_gate");
  EXPECT_EQ(moe.router_norm, "router_norm");
  EXPECT_EQ(moe.expert_scales, "expert_scales");
  EXPECT_EQ(moe.shared_post_norm, "shared_post_norm");
  EXPECT_EQ(moe.expert_norm, "expert_norm");
  EXPECT_EQ(moe.expert_post_norm, "expert_post_norm");
  EXPECT_EQ(layer.scale, "scale");
  EXPECT_EQ(moe.gate_bias, "gate_bias");
  EXPECT_EQ(moe.up_bias, "up_bias");
  EXPECT_EQ(moe.down_bias, "down_bias");
}

TEST(MapTensors, SpecsComeAlong) {
  const ModelTensors<Named> named =
      map_tensors<Named>(small_model(), [](const auto& tensor) { return tensor.name; });
  const Layer<Named>& layer = named.layers.at(0);
  EXPECT_EQ(std::get<Attention<Named>>(layer.mixer).spec.n_heads, 4);
  EXPECT_EQ(std::get<Attention<Named>>(layer.mixer).spec.rope.inv_freq.size(), 4u);
  EXPECT_EQ(std::get<Moe<Named>>(layer.ffn).spec.n_experts, 8);
  EXPECT_EQ(std::get<Moe<Named>>(layer.ffn).shared.spec.d_ff, 24);
  EXPECT_EQ(std::get<LatentAttention<Named>>(named.mtp->layer.mixer).spec.kv_rank, 32);
  EXPECT_EQ(std::get<FeedForward<Named>>(named.mtp->layer.ffn).spec.d_ff, 96);
}

TEST(MapTensors, DeltaAndLatentSlots) {
  const auto name = [](const auto& tensor) { return tensor.name; };
  const auto delta = map_tensors<Named>(GatedDelta<Stored>{{.d_key = 16},
                                                           matrix("qkv"),
                                                           matrix("z"),
                                                           matrix("b"),
                                                           matrix("a"),
                                                           matrix("out"),
                                                           vector("conv"),
                                                           vector("a_log"),
                                                           vector("dt_bias"),
                                                           vector("norm")},
                                        name);
  EXPECT_EQ(delta.spec.d_key, 16);
  EXPECT_EQ(delta.qkv + delta.z + delta.b + delta.a + delta.out, "qkvzbaout");
  EXPECT_EQ(delta.conv + delta.a_log + delta.dt_bias + delta.norm, "conva_logdt_biasnorm");
  const auto mla = map_tensors<Named>(LatentAttention<Stored>{{.kv_rank = 32},
                                                              matrix("q_a"),
                                                              vector("q_a_norm"),
                                                              matrix("q"),
                                                              matrix("kv_a"),
                                                              vector("kv_a_norm"),
                                                              matrix("kv_b"),
                                                              matrix("embed_q"),
                                                              matrix("unembed"),
                                                              matrix("o")},
                                      name);
  EXPECT_EQ(mla.spec.kv_rank, 32);
  EXPECT_EQ(mla.q_a + mla.q_a_norm + mla.q + mla.kv_a, "q_aq_a_normqkv_a");
  EXPECT_EQ(mla.kv_a_norm + mla.kv_b + mla.embed_q + mla.unembed + mla.o,
            "kv_a_normkv_bembed_qunembedo");
}

}  // namespace
}  // namespace moeflux
