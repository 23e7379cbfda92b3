#include "source/flash_moe.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "quant/codec.h"
#include "source/config_files.h"
#include "source/tensor_lookup.h"
#include "support/expect_error.h"
#include "support/flash_moe_writer.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::FlashMoeOptions;
using test::TempDir;
using test::write_flash_moe;

std::vector<std::byte> read_bytes(const ModelSource& source, const Extent& extent) {
  std::vector<std::byte> bytes(extent.bytes);
  if (extent.bytes > 0) source.read(extent, bytes);
  return bytes;
}

void expect_same_matrix(const ModelSource& a, const StoredMatrix& x, const ModelSource& b,
                        const StoredMatrix& y) {
  EXPECT_EQ(x.format, y.format) << x.name;
  EXPECT_EQ(read_bytes(a, x.data), read_bytes(b, y.data)) << x.name;
  EXPECT_EQ(read_bytes(a, x.scales), read_bytes(b, y.scales)) << x.name;
  EXPECT_EQ(read_bytes(a, x.biases), read_bytes(b, y.biases)) << x.name;
}

struct Sizes {
  int n_experts, n_layers;
  std::int64_t d_model, d_ff;

  explicit Sizes(const ModelSource& source) {
    const Json& text = text_config(source.config());
    n_experts =
        text.at(text.contains("num_experts") ? "num_experts" : "n_routed_experts").get<int>();
    n_layers = text.at("num_hidden_layers").get<int>();
    d_model = text.at("hidden_size").get<std::int64_t>();
    d_ff = text.at("moe_intermediate_size").get<std::int64_t>();
  }
};

std::string original_prefix(const ModelSource& source) {
  return source.find("model.norm.weight") != nullptr ? "" : "language_model.";
}

void expect_same_experts(const ModelSource& original, const ModelSource& copy) {
  const Sizes sizes(original);
  for (int layer = 0; layer < sizes.n_layers; ++layer) {
    const std::string module = fmt::format("model.layers.{}.mlp.switch_mlp.", layer);
    const std::string original_module = original_prefix(original) + module;
    ASSERT_EQ(has_module(original, original_module + "gate_proj"),
              has_module(copy, module + "gate_proj"));
    if (!has_module(copy, module + "gate_proj")) continue;
    for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
      const bool down = name == "down_proj";
      const std::int64_t rows = down ? sizes.d_model : sizes.d_ff;
      const std::int64_t cols = down ? sizes.d_ff : sizes.d_model;
      const auto want =
          find_stacked_matrices(original, original_module + name, sizes.n_experts, rows, cols);
      const auto got = find_stacked_matrices(copy, module + name, sizes.n_experts, rows, cols);
      for (int e = 0; e < sizes.n_experts; ++e) {
        expect_same_matrix(original, want.at(e), copy, got.at(e));
      }
    }
  }
}

// Every tensor of the trunk, byte for byte, and nothing but the trunk.
void expect_same_residents(const ModelSource& original, const ModelSource& copy) {
  std::size_t n = 0;
  const std::string prefix = original_prefix(original);
  for (const auto& [name, info] : original.tensors()) {
    if (name.find("mtp.") != std::string::npos || name.find("switch_mlp") != std::string::npos) {
      continue;
    }
    const TensorInfo* got = copy.find(name.substr(prefix.size()));
    ASSERT_NE(got, nullptr) << name;
    EXPECT_EQ(got->offset % 64, 0u);
    EXPECT_EQ(got->shape, info.shape);
    EXPECT_EQ(read_bytes(copy, got->extent()), read_bytes(original, info.extent())) << name;
    ++n;
  }
  for (const auto& [name, info] : copy.tensors()) n -= name.find("switch_mlp") == name.npos;
  EXPECT_EQ(n, 0u);
}

class FlashMoeDemo : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { original_ = open_source(test::source_path(GetParam())); }
  void write(const FlashMoeOptions& options) const {
    write_flash_moe(*original_, dir_.path(), options);
  }

  TempDir dir_;
  std::shared_ptr<const ModelSource> original_;
};

TEST_P(FlashMoeDemo, OneDirectory) {
  write({});
  const auto copy = open_source(dir_.path());
  EXPECT_EQ(copy->layout(), ModelSource::Layout::FlashMoe);
  EXPECT_EQ(copy->config(), original_->config());
  EXPECT_EQ(copy->text().chat_template, original_->text().chat_template);
  EXPECT_EQ(copy->text().tokenizer_json, dir_.file("tokenizer.json"));
  EXPECT_EQ(copy->generation_config(), original_->generation_config());
  expect_same_residents(*original_, *copy);
  expect_same_experts(*original_, *copy);
}

TEST_P(FlashMoeDemo, ParentOfThree) {
  write({.tree = FlashMoeOptions::Tree::ParentOfThree, .layout_json = false});
  const TempDir links;  // the three may be links to elsewhere
  for (const char* name : {"mlx", "artifacts", "root"}) {
    fs::create_directory_symlink(dir_.file(name), links.file(name));
  }
  const auto copy = open_source(links.path());
  EXPECT_EQ(copy->config(), original_->config());
  EXPECT_EQ(copy->text().tokenizer_json, links.file("mlx/tokenizer.json"));
  expect_same_residents(*original_, *copy);
  expect_same_experts(*original_, *copy);
}

TEST_P(FlashMoeDemo, ConfigOfTheManifest) {
  write({.config_json = false});
  const auto copy = open_source(dir_.path());
  const Json& text = text_config(original_->config());
  const Json& config = copy->config();
  EXPECT_EQ(copy->config_origin(), dir_.file("model_weights.json") + ": config");
  EXPECT_EQ(config.at("model_type"), text.at("model_type"));
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size",
                          "num_key_value_heads", "rms_norm_eps", "num_experts_per_tok",
                          "moe_intermediate_size", "tie_word_embeddings"}) {
    EXPECT_EQ(config.at(key), text.at(key)) << key;
  }
  EXPECT_EQ(config.at("quantization").at("bits"), 4);
  EXPECT_EQ(config.at("quantization").at("group_size"), 64);
  EXPECT_TRUE(config.contains("rope_theta"));
  expect_same_experts(*original_, *copy);
}

std::vector<float> decode(const ModelSource& source, const StoredMatrix& m, std::int64_t row) {
  const auto data = read_bytes(source, m.data), scales = read_bytes(source, m.scales),
             biases = read_bytes(source, m.biases);
  std::vector<float> out(static_cast<std::size_t>(m.cols));
  decode_row({.format = m.format,
              .rows = m.rows,
              .cols = m.cols,
              .data = data.data(),
              .scales = scales.data(),
              .biases = biases.data()},
             row, out.data());
  return out;
}

// Two bits keep the ends of each group and err by half a step inside it, plus the truncation of
// scale and bias to BF16.
TEST_P(FlashMoeDemo, TwoBitExperts) {
  write({.expert_bits = 2});
  const auto copy = open_source(dir_.path());
  const Sizes sizes(*original_);
  const int layer = sizes.n_layers - 1;
  const std::string module = fmt::format("model.layers.{}.mlp.switch_mlp.down_proj", layer);
  const auto want = find_stacked_matrices(*original_, original_prefix(*original_) + module,
                                          sizes.n_experts, sizes.d_model, sizes.d_ff);
  const auto got = find_stacked_matrices(*copy, module, sizes.n_experts, sizes.d_model, sizes.d_ff);
  ASSERT_EQ(describe(got.at(0).format), "affine 2-bit g64");
  for (const int e : {0, sizes.n_experts - 1}) {
    const std::vector<float> a = decode(*original_, want.at(e), 1), b = decode(*copy, got.at(e), 1);
    const auto [low, high] = std::minmax_element(a.begin(), a.end());
    const float bound = (*high - *low) / 6 + 4 * std::max(std::abs(*low), std::abs(*high)) / 128;
    for (std::size_t c = 0; c < a.size(); ++c) EXPECT_NEAR(a[c], b[c], bound) << e << " " << c;
  }
}

TEST_P(FlashMoeDemo, FourBitIsPreferredAndBothMayLieThere) {
  write({});
  write({.expert_bits = 2});
  expect_same_experts(*original_, *open_source(dir_.path()));
}

INSTANTIATE_TEST_SUITE_P(Models, FlashMoeDemo, testing::Values("models/demo", "models/demo-mla"),
                         [](const auto& test) {
                           return std::string_view(test.param).find("mla") == std::string_view::npos
                                      ? "Qwen"
                                      : "Mla";
                         });

}  // namespace
}  // namespace moeflux
