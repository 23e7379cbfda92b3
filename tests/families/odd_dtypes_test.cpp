// Whole checkpoints whose tensors are not of the types that released ones have: those that cannot
// be read, in tensors the model needs and in others, and FP8 where it has no meaning.
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/file.h"
#include "families/family.h"
#include "source/safetensors.h"
#include "support/expect_error.h"
#include "support/paths.h"
#include "support/safetensors_writer.h"

namespace moeflux {
namespace {

// A copy of a fixture with another dtype for one tensor, or with one tensor more.
class OddDTypes : public testing::Test {
 protected:
  explicit OddDTypes(const char* fixture) {
    const std::string from = test::source_path(fixture);
    dir_.write("config.json", read_text_file(from + "/config.json"));
    const std::string bytes = read_text_file(from + "/model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    header_ = parse_json(bytes.substr(sizeof length, length), "header");
    data_ = bytes.substr(sizeof length + length);
  }

  std::shared_ptr<const ModelSource> open() {
    dir_.write("model.safetensors", test::SafetensorsWriter::file_bytes(dump_json(header_), data_));
    return open_source(dir_.path());
  }

  // Bytes of a new tensor, or of new ones for an old name.
  void put(const std::string& name, const char* dtype, const Json& shape, std::size_t bytes) {
    header_[name] = {
        {"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes}}};
    data_.append(bytes, '\1');
  }

  test::TempDir dir_;
  Json header_;
  std::string data_;
};

class UnreadDTypes : public OddDTypes {
 protected:
  UnreadDTypes() : OddDTypes("tests/fixtures/qwen-onekv") {}
};

TEST_F(UnreadDTypes, InTensorsThatNobodyNeeds) {
  const std::size_t n_layers = describe_model(*open()).config.layers.size();
  put("model.layers.0.rotary.inv_freq", "F64", {4}, 32);
  EXPECT_EQ(describe_model(*open()).config.layers.size(), n_layers);
}

// Whichever tensor it is: the message names it and its type.
TEST_F(UnreadDTypes, InAnyTensorTheModelNeeds) {
  const Json good = header_;
  int n_needed = 0;
  for (const auto& [name, entry] : good.items()) {
    if (name == "__metadata__") continue;
    header_ = good;
    header_[name]["dtype"] = "F8_E5M2FNUZ";
    const auto source = open();
    try {
      describe_model(*source);
      EXPECT_NE(name.find("visual"), std::string::npos) << name << " was not missed";
    } catch (const Error& error) {
      ++n_needed;
      EXPECT_EQ(error.code(), Errc::Unsupported) << name << ": " << error.what();
      const std::string message = error.what();
      EXPECT_NE(message.find("\"" + name + "\""), std::string::npos) << name << ": " << message;
      EXPECT_NE(message.find("F8_E5M2FNUZ"), std::string::npos) << name << ": " << message;
    }
  }
  EXPECT_GT(n_needed, 20);
}

// Per-head matrices in one stack are run as one tall matrix.
class StackedHeads : public OddDTypes {
 protected:
  StackedHeads() : OddDTypes("tests/fixtures/mlx-dsv3-embedq") {}

  // 4 heads of [64, 64] in F8_E4M3.
  void put_fp8(int block) {
    const int n = (64 + block - 1) / block;
    const std::string module = "model.layers.0.self_attn.embed_q.";
    put(module + "weight", "F8_E4M3", {4, 64, 64}, 4 * 64 * 64);
    put(module + "weight_scale_inv", "F32", {4, n, n}, static_cast<std::size_t>(16 * n * n));
    Json config = parse_json(read_text_file(dir_.file("config.json")), "config.json");
    config["quantization_config"] = {
        {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {block, block}}};
    dir_.write("config.json", dump_json(config));
  }
};

TEST_F(StackedHeads, Fp8BlocksThatEndWithAHead) {
  put_fp8(32);
  const ModelDescription model = describe_model(*open());
  const auto& mla = std::get<LatentAttention<Stored>>(model.index.tensors.layers[0].mixer);
  EXPECT_EQ(mla.embed_q.format.kind, WeightKind::Fp8Block);
  EXPECT_EQ(mla.embed_q.rows, 4 * 64);
  EXPECT_EQ(mla.embed_q.scales.bytes, 4u * (2 * 2) * sizeof(float));
}

TEST_F(StackedHeads, Fp8BlocksThatWouldGoAcrossHeads) {
  put_fp8(128);
  test::expect_error(Errc::Unsupported, {"embed_q.weight", "64 rows", "blocks of 128"},
                     [&] { describe_model(*open()); });
}

}  // namespace
}  // namespace moeflux
