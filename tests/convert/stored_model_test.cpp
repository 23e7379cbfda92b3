// Whole models in every stored format: the logits of the same weights in F32, with all experts in
// memory, with few of them, and out of a container.
#include <gtest/gtest.h>

#include "convert/convert.h"
#include "convert/same_model.h"
#include "support/paths.h"
#include "support/stored_formats.h"
#include "support/tolerance.h"

namespace moeflux {
namespace {

using test::Random;
using test::SafetensorsWriter;
using test::TempDir;

struct Sizes {
  std::int64_t d, heads, q_rank, kv_rank, d_nope, d_rope, d_value, d_ff, d_expert;
  int group;
};
constexpr Sizes kEven{64, 2, 32, 32, 24, 8, 32, 96, 64, 32};
constexpr Sizes kOdd{72, 3, 40, 24, 11, 6, 16, 104, 40, 16};
constexpr std::int64_t kExperts = 6, kVocab = 40;

// Writes the same random weights in a format and in F32. What the format cannot hold is BF16.
class TwinWriter {
 public:
  TwinWriter(std::string_view format, const Sizes& sizes) : format_(format), m_(sizes) {}

  void write(const std::string& stored, const std::string& plain) {
    matrix("lm_head", kVocab, m_.d);
    floats("model.embed_tokens.weight", {kVocab, m_.d});
    floats("model.norm.weight", {m_.d});
    layer("model.layers.0.", false);
    layer("model.layers.1.", true);
    Json config{{"model_type", "deepseek_v3"},
                {"hidden_size", m_.d},
                {"num_hidden_layers", 2},
                {"vocab_size", kVocab},
                {"max_position_embeddings", 4096},
                {"num_attention_heads", m_.heads},
                {"q_lora_rank", m_.q_rank},
                {"kv_lora_rank", m_.kv_rank},
                {"qk_nope_head_dim", m_.d_nope},
                {"qk_rope_head_dim", m_.d_rope},
                {"v_head_dim", m_.d_value},
                {"intermediate_size", m_.d_ff},
                {"moe_intermediate_size", m_.d_expert},
                {"n_routed_experts", kExperts},
                {"n_shared_experts", 1},
                {"num_experts_per_tok", 2},
                {"first_k_dense_replace", 1},
                {"rope_theta", 10000.0}};
    plain_.write(plain + "/model.safetensors");
    test::write_file(plain + "/config.json", dump_json(config));
    const Json quantization = test::format_config(format_, m_.group);
    for (const auto& [key, value] : quantization.items()) config[key] = value;
    stored_.write(stored + "/model.safetensors");
    test::write_file(stored + "/config.json", dump_json(config));
  }

 private:
  void floats(const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t n = 1;
    for (const std::int64_t size : shape) n *= size;
    std::vector<float> values = random_.floats(n, 0.5);
    for (float& value : values) value += 1;
    stored_.add_f32(name, shape, values);
    plain_.add_f32(name, std::move(shape), values);
  }
  void matrix(const std::string& module, std::int64_t rows, std::int64_t cols) {
    const bool fits = test::can_store(format_, rows, cols);
    plain_.add_f32(
        module + ".weight", {rows, cols},
        test::add_stored(stored_, random_, fits ? format_ : "bf16", module, rows, cols, m_.group));
  }
  void ffn(const std::string& p, std::int64_t d_ff) {
    matrix(p + "gate_proj", d_ff, m_.d);
    matrix(p + "up_proj", d_ff, m_.d);
    matrix(p + "down_proj", m_.d, d_ff);
  }
  void layer(const std::string& p, bool is_sparse) {
    const std::string a = p + "self_attn.";
    floats(p + "input_layernorm.weight", {m_.d});
    floats(p + "post_attention_layernorm.weight", {m_.d});
    matrix(a + "q_a_proj", m_.q_rank, m_.d);
    floats(a + "q_a_layernorm.weight", {m_.q_rank});
    matrix(a + "q_b_proj", m_.heads * (m_.d_nope + m_.d_rope), m_.q_rank);
    matrix(a + "kv_a_proj_with_mqa", m_.kv_rank + m_.d_rope, m_.d);
    floats(a + "kv_a_layernorm.weight", {m_.kv_rank});
    matrix(a + "kv_b_proj", m_.heads * (m_.d_nope + m_.d_value), m_.kv_rank);
    matrix(a + "o_proj", m_.d, m_.heads * m_.d_value);
    if (!is_sparse) return ffn(p + "mlp.", m_.d_ff);
    floats(p + "mlp.gate.weight", {kExperts, m_.d});
    floats(p + "mlp.gate.e_score_correction_bias", {kExperts});
    for (std::int64_t e = 0; e < kExperts; ++e)
      ffn(fmt::format("{}mlp.experts.{}.", p, e), m_.d_expert);
    ffn(p + "mlp.shared_experts.", m_.d_expert);
  }

  std::string_view format_;
  const Sizes& m_;
  Random random_{23};
  SafetensorsWriter stored_, plain_;
};

std::vector<float> logits_of(const std::string& path, std::uint64_t cache_slots,
                             Precision precision = Precision::Exact) {
  const auto make = [&](BackendOptions options) {
    options.precision = precision;
    return make_backend(options);
  };
  test::LoadedModel model(path, {.cache_slots = cache_slots, .make_backend = make});
  Random random(5);
  const auto tokens = random.tokens(20, model.config().n_vocab);
  Session session = model.new_session();
  return model.feed(session, tokens, 7);
}

float most(const std::vector<float>& values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

class StoredModel : public testing::TestWithParam<std::string_view> {};

TEST_P(StoredModel, ComputesWhatItsValuesCompute) {
  for (const Sizes& sizes : {kEven, kOdd}) {
    const TempDir dir, plain;
    TwinWriter(GetParam(), sizes).write(dir.path(), plain.path());
    const std::vector<float> want = logits_of(plain.path(), 0);
    test::expect_same_bits(logits_of(dir.path(), 0), want, "in memory");
    test::expect_same_bits(logits_of(dir.path(), 2), want, "streamed");

    const std::string container = dir.file("container");
    convert(dir.path(), container, {});
    test::expect_same_bits(logits_of(container, 2), want, "container");
    // With rounded activations: the same arithmetic, however the weights are stored.
    const std::vector<float> rounded = logits_of(dir.path(), 0, Precision::Fine);
    test::expect_same_bits(logits_of(dir.path(), 2, Precision::Fine), rounded, "streamed, fine");
    test::expect_same_bits(logits_of(container, 2, Precision::Fine), rounded, "container, fine");
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(rounded[i], want[i], 0.02 * most(want));
    const auto a = open_source(dir.path()), b = open_source(container);
    test::expect_same_model(*a, *b);
    // A container of a container is the same again.
    const std::string again = dir.file("again");
    convert(container, again, {});
    EXPECT_EQ(open_source(again)->fingerprint(), b->fingerprint());
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoredModel, testing::ValuesIn(test::stored_formats()),
                         [](const auto& test) {
                           std::string name(test.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moeflux
