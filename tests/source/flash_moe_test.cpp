#include "source/flash_moe.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "quant/codec.h"
#include "source/checkpoint_files.h"
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

using test::expect_error;
using test::TempDir;

std::vector<std::uint64_t> offsets(const PackedBlob& blob) {
  std::vector<std::uint64_t> out;
  for (const PackedPart& part : blob.parts) out.push_back(part.offset);
  return out;
}

constexpr ExpertSizes k397B{.n_experts = 512, .d_model = 4096, .d_ff = 1024};
constexpr ExpertSizes k35B{.n_experts = 256, .d_model = 2048, .d_ff = 512};
constexpr ExpertSizes k671B{.n_experts = 256, .d_model = 7168, .d_ff = 2048};

using Offsets = std::vector<std::uint64_t>;

// The published offsets of the released conversions.
TEST(PackedBlob, OffsetsOfReleasedModels) {
  EXPECT_EQ(packed_blob(k397B, 4).bytes, 7077888u);
  EXPECT_EQ(offsets(packed_blob(k397B, 4)),
            (Offsets{0, 2097152, 2228224, 2359296, 4456448, 4587520, 4718592, 6815744, 6946816}));
  EXPECT_EQ(packed_blob(k397B, 2).bytes, 3932160u);
  EXPECT_EQ(offsets(packed_blob(k397B, 2)),
            (Offsets{0, 1048576, 1179648, 1310720, 2359296, 2490368, 2621440, 3670016, 3801088}));
  EXPECT_EQ(packed_blob(k35B, 4).bytes, 1769472u);
  EXPECT_EQ(offsets(packed_blob(k35B, 4)),
            (Offsets{0, 524288, 557056, 589824, 1114112, 1146880, 1179648, 1703936, 1736704}));
  EXPECT_EQ(packed_blob(k35B, 2).bytes, 983040u);
  EXPECT_EQ(packed_blob(k671B, 4).bytes, 24772608u);
  EXPECT_EQ(packed_blob(k671B, 2).bytes, 13762560u);
}

class PackedLayer : public testing::Test {
 protected:
  static constexpr ExpertSizes kSizes{.n_experts = 3, .d_model = 128, .d_ff = 64};

  void add(std::uint64_t file_bytes, const std::string& layout = "") {
    const std::string path = dir_.write("layer_07.bin", "");
    std::filesystem::resize_file(path, file_bytes);
    add_packed_layer(source_, path, "m.", kSizes, layout);
  }
  std::string layout(const Json& json) const { return dir_.write("layout.json", dump_json(json)); }

  TempDir dir_;
  ModelSource source_{"model", ModelSource::Layout::FlashMoe};
  std::uint64_t four_ = packed_blob(kSizes, 4).bytes;
  std::uint64_t two_ = packed_blob(kSizes, 2).bytes;
};

TEST_F(PackedLayer, FileSizeDecidesTheBits) {
  add(3 * four_);
  const TensorInfo* weight = source_.find("m.down_proj.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->shape, (std::vector<std::int64_t>{3, 128, 8}));
  EXPECT_EQ(weight->slice_stride, four_);
  EXPECT_EQ(source_.tensors().size(), 9u);

  ModelSource other("model", ModelSource::Layout::FlashMoe);
  std::filesystem::resize_file(dir_.file("layer_07.bin"), 3 * two_);
  add_packed_layer(other, dir_.file("layer_07.bin"), "m.", kSizes, "");
  EXPECT_EQ(other.find("m.down_proj.weight")->shape, (std::vector<std::int64_t>{3, 128, 4}));
  EXPECT_EQ(other.find("m.gate_proj.biases")->shape, (std::vector<std::int64_t>{3, 64, 2}));
}

TEST_F(PackedLayer, OtherSizesAreRefused) {
  for (const std::uint64_t size : {std::uint64_t{0}, 3 * four_ - 1, 3 * four_ + 1, 2 * four_}) {
    expect_error(Errc::BadInput,
                 {"layer_07.bin", "has " + std::to_string(size) + " bytes",
                  std::to_string(3 * four_) + " (4-bit)", std::to_string(3 * two_) + " (2-bit)"},
                 [&] { add(size); });
  }
}

TEST_F(PackedLayer, LayoutMustAgree) {
  const auto expect = [&](const Json& json, std::initializer_list<std::string_view> parts) {
    expect_error(Errc::BadInput, parts, [&] { add(3 * four_, layout(json)); });
  };
  expect({{"expert_size", two_}}, {"layout.json", "expert_size", std::to_string(two_), "4-bit"});
  expect({{"expert_size", four_}, {"num_experts", 4}}, {"layout.json", "num_experts", "4"});
  expect({{"expert_size", "x"}}, {"layout.json", "expert_size"});
  expect(Json::array(), {"layout.json", "must be a JSON object"});
  const Json moved{{"name", "gate_proj.scales"}, {"offset", 1}, {"size", 256}};
  expect({{"expert_size", four_}, {"components", {moved}}},
         {"layout.json", "gate_proj.scales", "256 bytes at 1"});
  const Json unknown{{"name", "side_proj.scales"}, {"offset", 1}, {"size", 256}};
  expect({{"expert_size", four_}, {"components", {unknown}}}, {"side_proj.scales", "not a part"});
}

TEST_F(PackedLayer, LayoutThatAgrees) {
  const Json part{{"name", "up.weight"}, {"offset", four_ / 3}, {"size", 64 * 64}};
  add(3 * four_,
      layout({{"expert_size", four_}, {"num_experts", 3}, {"components", Json::array({part})}}));
  EXPECT_EQ(source_.find("m.up_proj.weight")->offset, four_ / 3);
}

}  // namespace
}  // namespace moeflux
